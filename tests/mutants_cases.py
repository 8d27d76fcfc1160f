"""The seeded faults of `make mutants`: one row each, with the tests that must notice it.

Choose the test that states the promise which the fault breaks, on the backend that imports fastest. Where a fault survives, mend the
test and not the row.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A text of a file of the package, what replaces it, and the tests (pytest's node ids) that must notice on a backend."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    backend: str = "numpy"


def _tests(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{file}.py::{name}" for name in names)


UPDATES, GRADIENTS, MODULES = "rows/test_updates", "rows/test_gradients", "rows/test_modules"
CONVOLUTION, ATTENTION, RECURRENT = "rows/test_layers_convolution", "rows/test_layers_attention", "rows/test_layers_recurrent"
RANDOM, OF_OPS = "rows/test_random", "test_gradients_of_ops"

FAULTS = [
    # ---- ops: arguments in their canonical form
    Fault("axis negative", "ops/arguments.py", "return axis + ndim if axis < 0 else axis", "return axis", _tests("test_nn_losses", "test_classes")),
    Fault("var correction", "ops/reduction.py", '_spread("var", x, axis, dtype, correction, ddof, keepdims)', '_spread("var", x, axis, dtype, None, ddof, keepdims)', _tests("test_ops", "test_native[numpy-var:correction]")),
    Fault("mean keepdims", "ops/reduction.py", 'axis=axes("mean", axis), keepdims=keepdims)', 'axis=axes("mean", axis), keepdims=False)', _tests("test_ops", "test_native[numpy-mean:axis]", "test_native[numpy-mean:axes]")),
    Fault("same padding side", "ops/windows.py", "return total // 2, total - total // 2", "return total - total // 2, total // 2", _tests(CONVOLUTION, "test_conv1d")),
    Fault("same padding off by one", "ops/windows.py", "total = max(extent - (size % stride or stride), 0)", "total = max(extent - (size % stride), 0)", _tests(CONVOLUTION, "test_conv2d")),
    Fault("dropout in evaluation", "ops/attention.py", "if not training or prob == 0:", "if prob == 0:", _tests(ATTENTION, "test_dropout")),
    Fault("gelu approximate", "ops/activations.py", '("tanh" if approximate else "none")', '"none"', _tests("test_nn_activations", "test_on_a_line")),
    Fault("containers get one leaf", "core/lifting.py", "if type(x) in CONTAINERS:\n                return over_leaves(function.__name__, function, args, kwargs)\n        for x in kwargs.values():", "pass\n        for x in kwargs.values():", _tests("test_lifting", "test_containers_in_every_place")),
    # ---- views
    Fault("views keep the order of axes", "core/views.py", "tuple(order.index(axis) for axis in range(len(shape)))", "tuple(order)", _tests("test_views", "test_writes_through_permuted_axes"), "jax"),
    Fault("every reshape is a view", "core/views.py", "if size % wanted:", "if False:", _tests("test_views", "test_reshapes_are_views_where_numpys_are")),
    Fault("read-only views take writes", "core/views.py", "if op in READ_ONLY:", "if False:", _tests("test_views", "test_read_only_views")),
    Fault("views see old values", "core/array.py", "if data is not self._seen:", "if self._part is None:", _tests("test_views", "test_programs"), "jax"),
    Fault("free arrays move again", "core/free.py", "return brought(x._data, like, x._copies)", "return brought(x._data, like)", _tests("test_free_arrays", "test_a_free_array_moves_once_and_again_after_a_write")),
    # ---- composites
    Fault("label smoothing", "composites/losses.py", "if not label_smoothing:", "if True:", _tests("test_nn_losses", "test_classes")),
    Fault("label smoothing of probabilities", "composites/losses.py", "cast(target, x.dtype) * (1 - label_smoothing) + share", "cast(target, x.dtype)", _tests("test_nn_losses", "test_probabilities")),
    Fault("ignore index", "composites/losses.py", "ignored = target == ignore_index", "ignored = target == -987654", _tests("test_nn_losses", "test_classes")),
    Fault("huber beyond delta", "composites/losses.py", "(distance - 0.5 * delta) * delta", "(distance - delta) * delta", _tests("test_nn_losses", "test_values_and_gradients")),
    Fault("pos weight", "composites/losses.py", "if pos_weight is not None:", "if False:", _tests("test_nn_losses", "test_values_and_gradients", "test_gradients_by_weights")),
    Fault("dropout scale", "composites/attention.py", "x * (1 / (1 - prob)) if scale and prob < 1 else x, 0)", "x, 0)", _tests(ATTENTION, "test_dropout")),
    Fault("attention mask inverted", "composites/attention.py", "return mask if mask.dtype is bool_ else mask != 0", "return mask == 0", _tests(ATTENTION, "test_scaled_dot_product_attention")),
    Fault("attention scale", "composites/attention.py", "return query * scale @ key.mT", "return query @ key.mT", _tests(ATTENTION, "test_scaled_dot_product_attention")),
    Fault("causal offset", "composites/attention.py", "tl.expand_dims(queries, -1) >= tl.expand_dims(keys, -2)", "tl.expand_dims(queries, -1) > tl.expand_dims(keys, -2)", _tests(ATTENTION, "test_scaled_dot_product_attention")),
    Fault("padding mask of heads", "composites/attention.py", "return keys if mask is None else _as_bool(mask) & _as_bool(keys)", "return keys if mask is None else _as_bool(mask)", _tests(ATTENTION, "test_multi_head_attention")),
    Fault("rotary direction", "composites/attention.py", "second * cosines + first * sines", "second * cosines - first * sines", _tests("test_nn_attention", "test_rotary_embedding")),
    Fault("embedding padding index", "composites/attention.py", "if padding_idx is not None:", "if False:", _tests("test_nn_attention", "test_embedding_with_a_row_of_padding")),
    Fault("lstm gates swapped", "composites/recurrent.py", "i, f, g, o = _parts(inputs + products, 4)", "f, i, g, o = _parts(inputs + products, 4)", _tests(RECURRENT, "test_lstm_update")),
    Fault("lstm gradient of the cell", "composites/recurrent.py", "[None, dc * f]", "[None, dc]", _tests(RECURRENT, "test_lstm_update")),
    Fault("gru update gate", "composites/recurrent.py", "return [n + z * (state[0] - n)]", "return [state[0] + z * (n - state[0])]", _tests("test_nn_recurrent", "test_sequences_of_any_shape")),
    Fault("batch norm unbiased", "composites/normalization.py", 'return variance * (number / (number - 1) if number > 1 else float("nan"))', "return variance", _tests("test_nn_normalization", "test_batch_norm_by_its_statistics", "test_batch_norm_of_any_shape")),
    # ---- gradient rules on the tape
    Fault("tape tanh", "backends/numpy/tape/rules.py", '"tanh": lambda y: 1 - y * y', '"tanh": lambda y: 1 - y', _tests(GRADIENTS, "test_grad")),
    Fault("tape mean", "backends/numpy/tape/rules.py", "spread(g / numbers(x, axis), x, axis)", "spread(g, x, axis)", _tests(GRADIENTS, "test_grad")),
    Fault("tape divide", "backends/numpy/tape/rules.py", "-g * conjugate(y / x2)", "-g * conjugate(y)", _tests(OF_OPS, "test_first_order[numpy-divide]")),
    Fault("tape where", "backends/numpy/tape/rules.py", "masked(g, np.logical_not(c))", "masked(g, c)", _tests("test_nn_losses", "test_values_and_gradients")),
    Fault("tape max of equals", "backends/numpy/tape/rules.py", "share = kept(g, x, axis) / ops.sum(ops.astype(chosen, as_dtype(x.dtype)), axis=axis, keepdims=True)", "share = kept(g, x, axis)", _tests("test_tape", "test_kinks")),
    Fault("tape softmax", "backends/numpy/tape/rules.py", "return part - conjugate(y) * ops.sum(part, axis=axis, keepdims=True)", "return part", _tests(ATTENTION, "test_scaled_dot_product_attention")),
    Fault("tape matmul", "backends/numpy/tape/rules_linalg.py", "return matmul(adjoint(x1), g)", "return matmul(adjoint(x1), g) * 2", _tests(OF_OPS, "test_first_order[numpy-matmul]")),
    Fault("tape roll", "backends/numpy/tape/rules_arrays.py", "np.roll(g, -shift if isinstance(shift, int) else", "np.roll(g, shift if isinstance(shift, int) else", _tests(OF_OPS, "test_first_order[numpy-roll]", "test_first_order[numpy-roll:flat]")),
    # ---- transformations
    Fault("with_grads without effect", "transforms/gradients.py", "return not stack or stack[-1]", "return True", _tests(GRADIENTS, "test_with_grads")),
    Fault("set_with_grads without effect", "transforms/gradients.py", "return not stack or stack[-1]", "return True", _tests(GRADIENTS, "test_set_with_grads")),
    Fault("unset_with_grads unsets all", "transforms/gradients.py", "_WITH_GRADS.set(_WITH_GRADS.get()[:-1])", "_WITH_GRADS.set(())", _tests(GRADIENTS, "test_unset_with_grads")),
    Fault("unset_with_grads without effect", "transforms/gradients.py", "return not stack or stack[-1]", "return not stack or stack[0]", _tests(GRADIENTS, "test_unset_with_grads")),
    Fault("with_grads constants", "nn/structure.py", "if frozen or self.constant:", "if frozen:", _tests(GRADIENTS, "test_with_grads")),
    Fault("stop_gradient", "backends/numpy/grad.py", "x = innermost(x)", "return x", _tests(GRADIENTS, "test_stop_gradient")),
    Fault("chosen inputs", "transforms/gradients.py", "[x if names else None for x, names in zip(leaves, named, strict=True)]", "list(leaves)", _tests(GRADIENTS, "test_execute_with_gradients")),
    Fault("argnums", "transforms/gradients.py", "return position % count", "return 0", _tests(GRADIENTS, "test_grad")),
    Fault("custom gradient ignored", "transforms/gradients.py", "wrap(inputs.interpreter.custom_gradient(function, rule, inputs.leaves))", "wrap(function(inputs.leaves))", _tests("rows/test_custom_gradient", "test_bind_custom_gradient_function")),
    # ---- backends
    Fault("numpy groups interleaved", "backends/numpy/convolution.py", "np.moveaxis(x.reshape(*x.shape[:-1], groups, channels // groups), -2, 0)", "np.moveaxis(x.reshape(*x.shape[:-1], channels // groups, groups), -1, 0)", _tests(CONVOLUTION, "test_conv2d")),
    Fault("numpy convolution bias", "backends/numpy/convolution.py", "return None if bias is None else bias.reshape(groups, -1)", "return None", _tests(CONVOLUTION, "test_conv1d_transpose")),
    Fault("jax groups of a transpose", "backends/jax/convolution.py", "jnp.moveaxis(split, dims, dims + 1).reshape(", "split.reshape(", _tests(CONVOLUTION, "test_conv1d_transpose"), "jax"),
    Fault("jax linear bias", "backends/jax/fused.py", "return y if bias is None else y + bias", "return y", _tests(ATTENTION, "test_linear"), "jax"),
    Fault("torch asymmetric padding", "backends/torch/convolution.py", "for pair, s in zip(reversed(padding), reversed(symmetric)) for n in pair]", "for pair, s in zip(reversed(padding), reversed(symmetric)) for n in reversed(pair)]", _tests(CONVOLUTION, "test_conv1d"), "torch"),
    Fault("torch attention mask", "backends/torch/fused.py", "mask, is_causal = _visible(mask, is_causal, scores), False", "mask, is_causal = _visible(mask, False, scores), False", _tests(ATTENTION, "test_scaled_dot_product_attention"), "torch"),
    Fault("tensorflow groups", "backends/tensorflow/convolution.py", "tf.split(filters, groups, -1))", "tf.split(filters, groups, -1)[::-1])", _tests(CONVOLUTION, "test_conv3d"), "tensorflow"),
    # ---- random numbers
    Fault("threefry rotation", "random/keys.py", "(13, 15, 26, 6)", "(13, 15, 26, 7)", _tests("test_random_numbers", "test_published_values_of_threefry")),
    Fault("split gives equal keys", "random/keys.py", "threefry(data, (SPLIT, i)) for i in range(n)", "threefry(data, (SPLIT, 0)) for i in range(n)", _tests("test_random_numbers", "test_split_and_fold_in_are_independent")),
    Fault("high word of a seed", "random/keys.py", "return (number >> 32) & MASK, number & MASK", "return 0, number & MASK", _tests("test_random_numbers", "test_split_and_fold_in_are_independent")),
    Fault("normal std", "random/samplers.py", 'draw.parameter("mean", compute) + draw.parameter("std", compute) * standard', 'draw.parameter("mean", compute) + standard', _tests(RANDOM, "test_random_normal")),
    Fault("uniform low", "random/samplers.py", "between(unit, first, last, wanted)", "between(unit, first * 0.0, last, wanted)", _tests(RANDOM, "test_random_uniform")),
    Fault("multinomial replace", "random/samplers.py", "_classes(draw, population_size, rows, num_samples, replace)", "_classes(draw, population_size, rows, num_samples, True)", _tests(RANDOM, "test_multinomial")),
    Fault("multinomial probs", "random/samplers.py", 'if probs is None:\n            return below', 'if True:\n            return below', _tests(RANDOM, "test_multinomial")),
    Fault("exponential scale", "random/distributions.py", 'draw.parameter("scale", compute) * standard', "standard", _tests("test_random_numbers", "test_distribution[exponential]")),
    Fault("gamma shape", "random/distributions.py", "d = tl.where(small, alpha + 1.0, alpha) - 1.0 / 3.0", "d = tl.where(small, alpha + 1.0, alpha)", _tests("test_random_numbers", "test_distribution[gamma]")),
    Fault("truncated normal std", "random/distributions.py", 'draw.parameter("mean", wide) + draw.parameter("std", wide) * standard', 'draw.parameter("mean", wide) + standard', _tests("test_random_numbers", "test_distribution[truncated moved]")),
    Fault("poisson acceptance", "random/distributions.py", "<= _poisson_log(tl.maximum(k, 0.0), mean)", "<= _poisson_log(tl.maximum(k, 0.0), mean + 1.0)", _tests("test_random_numbers", "test_distribution[poisson large]", "test_distribution[poisson huge]")),
    # ---- modules and layers
    Fault("top_mod depth", "nn/navigation.py", "return above[depth]", "return above[-1]", _tests(MODULES, "test_top_module")),
    Fault("top_v depth", "nn/module.py", "return self.top_mod(depth).v", "return self.top_mod().v", _tests(MODULES, "test_top_variables")),
    Fault("v_with_top_v_key_chains depth", "nn/module.py", "path = navigation.path_from(self.top_mod(depth), self)", "path = navigation.path_from(self.top_mod(), self)", _tests(MODULES, "test_v_with_top_v_key_chains")),
    Fault("sub_mods depth", "nn/module.py", "if level and (depth is None or level <= depth)}", "if level}", _tests(MODULES, "test_sub_modules")),
    Fault("track depth", "nn/tracking.py", "if level and (depth is None or level <= depth)]", "if level]", _tests(MODULES, "test_module_track_submod_rets")),
    Fault("track results that differ", "nn/tracking.py", "if not np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True):", "if not np.allclose(x, y, rtol=rtol, atol=atol + 1e-3, equal_nan=True):", _tests(MODULES, "test_module_check_submod_rets")),
    Fault("track call order", "nn/tracking.py", 'self.open.append((f"{path}_{number}", calls))', 'self.open.append((f"{path}_0", calls))', _tests(MODULES, "test_module_track_submod_call_order")),
    Fault("freeze without effect", "nn/navigation.py", "(one._meta.frozen.add if frozen else one._meta.frozen.discard)(name)", "one._meta.frozen.discard(name)", _tests("test_module", "test_freeze")),
    Fault("frozen parameters get gradients", "nn/structure.py", "if frozen or self.constant:", "if self.constant:", _tests("test_module", "test_freeze")),
    Fault("v of a call ignored", "nn/structure.py", "found = value if type(value) is Array else as_array(value)", "found = own", _tests("test_module", "test_a_call_with_v_is_pure")),
    Fault("batch norm statistics", "nn/normalization.py", "self.running_mean, self.running_variance = new", "pass", _tests("test_layers", "test_statistics_follow_the_batches")),
    Fault("batch norm momentum", "composites/normalization.py", "old * (1 - momentum) + tl.reshape(now, (-1,)) * momentum", "old * momentum + tl.reshape(now, (-1,)) * (1 - momentum)", _tests("test_nn_normalization", "test_batch_norm_of_any_shape")),
    Fault("reverse direction", "nn/recurrent.py", "outputs.append(tl.flip(every, axis=axis) if direction else every)", "outputs.append(every)", _tests("test_layers", "test_layer_is_that_of_torch")),
    # ---- optimizers and schedules
    Fault("adam epsilon in numpy", "backends/numpy/optimizers.py", "change += root * epsilon", "change += 0.0", _tests(UPDATES, "test_adam_update")),
    Fault("adam epsilon in torch", "backends/torch/optimizers.py", "eps=epsilon, amsgrad=False", "eps=0.0, amsgrad=False", _tests(UPDATES, "test_adam_update"), "torch"),
    Fault("adam epsilon in the rule", "optim/rules.py", "(tl.sqrt(new[-1]) + root * self.epsilon)", "(tl.sqrt(new[-1]) + 1e-30)", _tests(UPDATES, "test_adam_step")),
    Fault("adam epsilon of an update", "optim/updates.py", 'options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}\n    arrays =', 'options = {"beta1": beta1, "beta2": beta2, "epsilon": 1e-7}\n    arrays =', _tests(UPDATES, "test_adam_update")),
    Fault("lamb epsilon", "optim/rules.py", "(tl.sqrt(second / second_correction) + self.epsilon)", "(tl.sqrt(second / second_correction) + 1e-30)", _tests(UPDATES, "test_lamb_update")),
    Fault("adam correction", "optim/rules.py", "return 1.0 - beta**step\n    return -tl.expm1", "return 1.0\n    return -tl.expm1", _tests(UPDATES, "test_lamb_update")),
    Fault("lars decay", "optim/engine.py", "g = g + decay * w", "g = g * 1.0", _tests(UPDATES, "test_lars_update")),
    Fault("lamb decay", "optim/rules.py", "change + decay * w if decay else change", "change", _tests(UPDATES, "test_lamb_update")),
    Fault("lamb trust ratio cap", "optim/rules.py", "minimum(ratio, largest)", "ratio", _tests(UPDATES, "test_lamb_update")),
    Fault("decay of sgd", "backends/numpy/optimizers.py", "change = np.multiply(w, decay)", "change = np.multiply(w, 0.0)", _tests("test_optim", "test_fifty_steps[numpy-SGD-momentum-dampening-weight_decay]")),
    Fault("decay of adamw", "backends/numpy/optimizers.py", "w * (1 - lr * decay)", "w", _tests("test_optim", "test_fifty_steps[numpy-AdamW-weight_decay]")),
    Fault("decay of lion", "optim/engine.py", "w = w * (1.0 - lr * decay)", "w = w * 1.0", _tests("test_optim", "test_fifty_steps[numpy-Lion-weight_decay]")),
    Fault("clip by norm", "optim/gradients.py", "tl.where(norm > max_norm, tl.divide(max_norm, norm), 1.0)", "tl.where(norm > max_norm, 1.0, 1.0)", _tests("test_optim", "test_clipping")),
    Fault("accumulated mean", "optim/wrappers.py", "share = 1.0 / self.steps", "share = 1.0", _tests("test_optim", "test_accumulation")),
    Fault("average warmup", "optim/wrappers.py", "share = max(share, 9.0 / (9.0 + number))", "share = share + 0.0", _tests("test_optim", "test_average_of_weights")),
    Fault("cosine after its end", "optim/schedules.py", "_along_cosine(initial, final, _minimum(step, steps) / steps)", "_along_cosine(initial, final, step / steps)", _tests("test_optim", "test_schedules")),
    Fault("polynomial power", "optim/schedules.py", "(1.0 - _minimum(step, steps) / steps) ** power", "(1.0 - _minimum(step, steps) / steps)", _tests("test_optim", "test_schedules")),
    Fault("sequence counts on", "optim/schedules.py", "part(_maximum(step - boundary, 0.0))", "part(step)", _tests("test_optim", "test_schedules")),
    # ---- training and files
    Fault("means by rows", "training/steps.py", "+ float(value) * rows", "+ float(value) * self.rows / 2", _tests("test_training", "test_measures_are_means_over_all_rows")),
    Fault("evaluation trains", "training/steps.py", "with mode(self.model, False):\n            for batch", "with mode(self.model, True):\n            for batch", _tests("test_training", "test_modes")),
    Fault("patience", "training/callbacks.py", "if self.waited >= self.patience:", "if self.waited > self.patience:", _tests("test_training", "test_early_stopping_puts_the_best_parameters_back")),
    Fault("best parameters", "training/callbacks.py", "if self.values:", "if False:", _tests("test_training", "test_early_stopping_puts_the_best_parameters_back")),
    Fault("order of every epoch", "data/batches.py", "seed=fold_in(self.key, number)", "seed=self.key", _tests("test_training", "test_batches")),
    Fault("checkpoint without optimizer", "training/steps.py", '"optimizer": run.optimizer.state', '"optimizer": {}', _tests("test_training_files", "test_a_training_goes_on_exactly")),
    Fault("frozen parameters in training", "training/trainer.py", "v, state = self.model.trainable_v, None", "v, state = self.model.v, None", _tests("test_training", "test_frozen_parameters_stay")),
    Fault("state not saved", "nn/saving.py", "for part, values in module.state().items()}\n    flat", 'for part, values in module.state().items() if part == "v"} | {"buffers": {}, "random": {}}\n    flat', _tests("test_module_files", "test_round_trip_between_backends")),
    Fault("hash of a file", "nn/saving.py", 'if digest.hexdigest() != metadata["sha256"]:', "if False:", _tests("test_module_files", "test_a_damaged_file_is_an_error_and_changes_nothing")),
    # ---- converters
    Fault("converter ignores v", "convert/torch.py", "state = dict(zip(link.names, given))", "state = dict(zip(link.names, [s.value.clone() for s in link.slots]))", _tests("rows/test_converters", "test_from_backend_module"), "torch"),
    Fault("foreign modules ignore v", "convert/common.py", "self._call_pure([nodes[part].__dict__[name]._data for part, name in link.places]", "self._call_pure([slot.value for slot in link.slots]", _tests("rows/test_converters", "test_from_backend_module"), "jax"),
    Fault("statistics stay in trellis", "convert/torch.py", "torch._foreach_copy_(buffers, values)", "pass", _tests("test_convert_torch", "test_ten_steps_are_those_of_trellis"), "torch"),
    Fault("converted frozen parameters", "convert/torch.py", "trained = name not in buffers and paths[id(value)] not in frozen", "trained = name not in buffers", _tests("test_convert_torch", "test_round_trip_keeps_random_state_frozen_parameters_and_modes"), "torch"),
    # ---- the matrix
    Fault("nothing compared is green", "matrix/plugin.py", 'return (PASSED, "") if comparisons_made else (FAILED, NOTHING_COMPARED)', 'return PASSED, ""', _tests("test_matrix", "test_a_test_that_compares_nothing_is_red")),
    Fault("matrix errors absolute", "matrix/comparisons.py", "/ (size or 1.0)", "/ 1.0", _tests("test_matrix", "test_differences_are_relative_to_the_largest_value")),
    Fault("matrix better status", "matrix/records.py", "key=lambda r: _SEVERITY.index(r.status))", "key=lambda r: -_SEVERITY.index(r.status))", _tests("test_matrix", "test_two_tests_of_one_row_give_the_worse_status")),
]  # fmt: skip
