# ruff: noqa: E501
"""Models of transformers and diffusers, small and with random weights, for the tests and the sweep of `tl.transpile`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import diffusers
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

# Attributes of configurations that make a model small. A configuration takes those that it has.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "encoder_hidden_size", "decoder_hidden_size", "word_embed_proj_dim", "d_embed"), 32),
    **dict.fromkeys(("embedding_size",), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers", "encoder_num_layers", "decoder_num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "encoder_num_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "hidden_dim", "ffn_hidden_size", "dim_feedforward", "encoder_intermediate_size"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("d_kv", "head_dim", "d_head", "attention_head_dim"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok",), 2),
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "image_size": 32, "patch_size": 8, "num_channels": 3,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "max_source_positions": 32, "max_target_positions": 32,
    "num_mel_bins": 16, "type_vocab_size": 2, "state_size": 8, "num_labels": 3, "projection_dim": 32, "sliding_window": None, "layerdrop": 0.0, "apply_spec_augment": False,
}  # fmt: skip

# What a model needs beyond that, by the name of its configuration.
OWN: dict[str, dict[str, Any]] = {
    "ResNetConfig": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
    "RegNetConfig": {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "groups_width": 8, "image_size": 64},
    "ConvNextConfig": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "ConvNextV2Config": {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "SwinConfig": {"embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    "Swinv2Config": {"embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    "SegformerConfig": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4], "image_size": 64, "decoder_hidden_size": 32},
    "PvtConfig": {"hidden_sizes": [16, 32, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4], "patch_size": 4, "image_size": 64},
    "MobileNetV2Config": {"depth_multiplier": 0.35, "min_depth": 4, "image_size": 64, "initializer_range": 0.3}, "MobileNetV1Config": {"depth_multiplier": 0.25, "min_depth": 4},
    "MobileViTConfig": {"initializer_range": 0.3, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64], "patch_size": 2, "image_size": 64},
    "DeiTConfig": {"encoder_stride": 8}, "BeitConfig": {"out_indices": [1, 2], "use_relative_position_bias": True},
    "GemmaConfig": {"num_key_value_heads": 4}, "WhisperConfig": {"max_source_positions": 16, "suppress_tokens": None, "begin_suppress_tokens": None},
    "Wav2Vec2Config": {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2},
    "HubertConfig": {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2},
    "WavLMConfig": {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2},
    "MambaConfig": {"expand": 2, "time_step_rank": 4}, "BloomConfig": {"n_layer": 2}, "XLNetConfig": {"d_inner": 64},
    "DebertaV2Config": {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
    "DebertaConfig": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "GPTJConfig": {"rotary_dim": 4}, "LiltConfig": {"hidden_size": 48}, "GPTNeoConfig": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "LayoutLMv3Config": {"coordinate_size": 4, "shape_size": 8, "max_2d_position_embeddings": 64}, "ViTMAEConfig": {"mask_ratio": 0.0},
    "Phi3Config": {"pad_token_id": 1}, "Qwen2MoeConfig": {"decoder_sparse_step": 1}, "FunnelConfig": {"block_sizes": [1, 1], "d_inner": 64, "num_decoder_layers": 1},
    "DetrConfig": {"num_queries": 5, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
}  # fmt: skip


def config_of(kind: Any, **own: Any) -> Any:
    """A small configuration of a class."""
    names = set(inspect.signature(kind.__init__).parameters) | {
        f for c in kind.__mro__ for f in getattr(c, "__annotations__", {})
    }
    maps = getattr(kind, "attribute_map", {})
    special = OWN.get(kind.__name__, {}) | own
    given = {name: value for name, value in SMALL.items() if name in names or (name in maps and maps[name] not in special)}
    given |= special
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**given)


def tokens(batch: int = 3, length: int = 8) -> torch.Tensor:
    return torch.randint(3, 90, (batch, length), generator=torch.Generator().manual_seed(0))


def images(size: int = 32, channels: int = 3, batch: int = 2) -> torch.Tensor:
    return torch.randn((batch, channels, size, size), generator=torch.Generator().manual_seed(1))


def inputs_of(model: Any) -> dict[str, Any]:
    """Arguments of a call, by the names of the parameters of `forward`."""
    names = set(inspect.signature(model.forward).parameters)
    config = model.config
    given: dict[str, Any] = {}
    if "input_ids" in names:
        given["input_ids"] = tokens()
        if "attention_mask" in names:
            given["attention_mask"] = torch.tensor([[1] * 8, [1] * 8, [1] * 6 + [0] * 2])
    if "decoder_input_ids" in names:
        given["decoder_input_ids"] = tokens(length=5)
    if "pixel_values" in names:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None) or 32
        batch = 3 if "input_ids" in given else 2
        given["pixel_values"] = images(size if isinstance(size, int) else size[0], getattr(vision, "num_channels", 3) or 3, batch)
        given.pop("attention_mask", None) if "input_ids" not in names else None
    if "input_values" in names:
        given["input_values"] = torch.randn((2, 400), generator=torch.Generator().manual_seed(2))
        given.pop("attention_mask", None)
    if "input_features" in names:
        given["input_features"] = torch.randn(
            (3, getattr(config, "num_mel_bins", 16), 32), generator=torch.Generator().manual_seed(3)
        )
        given.pop("attention_mask", None)
    if "use_cache" in names:
        given["use_cache"] = False
    return given


def build(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(config).eval()


def named(
    model_class: str, config_class: str, arguments: Callable[[], dict[str, Any]] | None = None, **own: Any
) -> Callable[[], tuple[Any, dict[str, Any]]]:
    """A model of transformers by the names of its classes, and its arguments."""

    def make() -> tuple[Any, dict[str, Any]]:
        transformers.logging.set_verbosity_error()
        model = build(getattr(transformers, model_class), config_of(getattr(transformers, config_class), **own))
        return model, inputs_of(model) if arguments is None else arguments()

    return make


def _clip() -> tuple[Any, dict[str, Any]]:
    text = config_of(transformers.CLIPTextConfig).to_dict()
    vision = config_of(transformers.CLIPVisionConfig).to_dict()
    model = build(transformers.CLIPModel, transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32))
    return model, inputs_of(model)


def _detr() -> tuple[Any, dict[str, Any]]:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    own = {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": backbone,
        "num_queries": 5,
    }
    model = build(transformers.DetrModel, config_of(transformers.DetrConfig, **own))
    return model, {"pixel_values": images(64)}


def _diffusers(
    kind: str, options: dict[str, Any], call: Callable[[], dict[str, Any]]
) -> Callable[[], tuple[Any, dict[str, Any]]]:
    def make() -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        return getattr(diffusers, kind)(**options).eval(), call()

    return make


_BLOCKS: dict[str, Any] = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (32, 32), "norm_num_groups": 8}
_STEPS = torch.tensor([1, 5])
MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "bert": named("BertModel", "BertConfig"),
    "distilbert": named("DistilBertModel", "DistilBertConfig"),
    "roberta": named("RobertaForMaskedLM", "RobertaConfig"),
    "albert": named("AlbertModel", "AlbertConfig"),
    "electra": named("ElectraModel", "ElectraConfig"),
    "deberta-v2": named("DebertaV2Model", "DebertaV2Config"),
    "gpt2": named("GPT2LMHeadModel", "GPT2Config"),
    "gpt-neox": named("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "opt": named("OPTForCausalLM", "OPTConfig"),
    "bloom": named("BloomForCausalLM", "BloomConfig"),
    "llama": named("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2),
    "mistral": named("MistralForCausalLM", "MistralConfig", num_key_value_heads=2),
    "qwen2": named("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2),
    "qwen3": named("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2),
    "gemma": named("GemmaForCausalLM", "GemmaConfig"),
    "phi": named("PhiForCausalLM", "PhiConfig"),
    "mixtral": named("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2),
    "t5": named("T5ForConditionalGeneration", "T5Config"),
    "bart": named("BartModel", "BartConfig"),
    "whisper": named("WhisperModel", "WhisperConfig"),
    "wav2vec2": named("Wav2Vec2Model", "Wav2Vec2Config"),
    "vit": named("ViTModel", "ViTConfig"),
    "deit": named("DeiTModel", "DeiTConfig"),
    "beit": named("BeitModel", "BeitConfig"),
    "swin": named("SwinModel", "SwinConfig"),
    "convnext": named("ConvNextModel", "ConvNextConfig"),
    "resnet": named("ResNetForImageClassification", "ResNetConfig"),
    "regnet": named("RegNetModel", "RegNetConfig"),
    "mobilenet-v2": named("MobileNetV2Model", "MobileNetV2Config"),
    "segformer": named("SegformerForSemanticSegmentation", "SegformerConfig"),
    "detr": _detr,
    "clip": _clip,
    "mamba": named("MambaForCausalLM", "MambaConfig"),
    "unet2d": _diffusers(
        "UNet2DModel", {**_BLOCKS, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8},
        lambda: {"sample": images(16), "timestep": _STEPS},
    ),
    "unet2d-condition": _diffusers(
        "UNet2DConditionModel", {**_BLOCKS, "in_channels": 4, "out_channels": 4, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "cross_attention_dim": 16, "attention_head_dim": 8},
        lambda: {"sample": images(16, 4), "timestep": _STEPS, "encoder_hidden_states": torch.randn(2, 5, 16)},
    ),
    "autoencoder-kl": _diffusers(
        "AutoencoderKL", {"block_out_channels": (16, 16), "norm_num_groups": 8, "latent_channels": 4, "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2},
        lambda: {"sample": images(16)},
    ),
    "dit": _diffusers(
        "DiTTransformer2DModel", {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2, "sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 10, "norm_num_groups": 4},
        lambda: {"hidden_states": images(8, 4), "timestep": _STEPS, "class_labels": torch.tensor([1, 2])},
    ),
}  # fmt: skip


def _perceiver() -> tuple[Any, dict[str, Any]]:
    config = transformers.PerceiverConfig(
        num_latents=6, d_latents=16, d_model=32, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2,
        num_cross_attention_heads=2, vocab_size=99, max_position_embeddings=8,
    )  # fmt: skip
    return build(transformers.PerceiverForMaskedLM, config), {"inputs": tokens(), "attention_mask": torch.ones(3, 8)}


def _maskformer() -> tuple[Any, dict[str, Any]]:
    backbone = config_of(transformers.SwinConfig, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4], image_size=64)
    decoder = config_of(transformers.DetrConfig, num_queries=5)
    config = transformers.MaskFormerConfig(
        backbone_config=backbone, decoder_config=decoder, fpn_feature_size=32, mask_feature_size=32
    )
    return build(transformers.MaskFormerModel, config), {"pixel_values": images(64)}


def _sam() -> tuple[Any, dict[str, Any]]:
    vision = transformers.SamVisionConfig(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=8, mlp_dim=64,
        window_size=4, global_attn_indexes=[1], num_pos_feats=8,
    )  # fmt: skip
    prompts = transformers.SamPromptEncoderConfig(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4)
    masks = transformers.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2, iou_head_hidden_dim=16
    )
    config = transformers.SamConfig(
        vision_config=vision.to_dict(), prompt_encoder_config=prompts.to_dict(), mask_decoder_config=masks.to_dict()
    )
    points = torch.tensor([[[[10.0, 12.0]]], [[[30.0, 20.0]]]])
    return build(transformers.SamModel, config), {"pixel_values": images(64), "input_points": points}


def _two_towers(name: str, **own: Any) -> tuple[Any, dict[str, Any]]:
    text, vision = (config_of(getattr(transformers, f"{name}{part}Config")).to_dict() for part in ("Text", "Vision"))
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision, **own)
    model = build(getattr(transformers, f"{name}Model"), config)
    return model, inputs_of(model)


def _siglip() -> tuple[Any, dict[str, Any]]:
    return _two_towers("Siglip")


def _blip() -> tuple[Any, dict[str, Any]]:
    return _two_towers("Blip", projection_dim=32)


def base(key: str) -> Callable[[], tuple[Any, dict[str, Any]]]:
    """The base model of an architecture of transformers, by its model type."""

    def make() -> tuple[Any, dict[str, Any]]:
        transformers.logging.set_verbosity_error()
        name = MODEL_MAPPING_NAMES[key]
        model = build(getattr(transformers, name if isinstance(name, str) else name[0]), config_of(CONFIG_MAPPING[key]))
        return model, inputs_of(model)

    return make


_SPEECH: dict[str, Any] = {
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
}
# Model types whose base models only need small sizes.
_BY_TYPE = (
    "deberta", "gptj", "gpt_bigcode", "biogpt", "ctrl", "xlm", "funnel", "longt5", "mt5", "mbart", "plbart", "prophetnet", "modernbert", "rembert",
    "convbert", "mobilebert", "roformer", "big_bird", "ernie", "esm", "flaubert", "luke", "megatron-bert",
)  # fmt: skip
# Architectures beyond those that the tables were written for.
BEYOND: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "falcon": named("FalconForCausalLM", "FalconConfig"),
    "mpt": named("MptForCausalLM", "MptConfig"),
    "phi3": named("Phi3ForCausalLM", "Phi3Config"),
    "gemma2": named("Gemma2ForCausalLM", "Gemma2Config", sliding_window=4),
    "stablelm": named("StableLmForCausalLM", "StableLmConfig"),
    "xlm-roberta": named("XLMRobertaForSequenceClassification", "XLMRobertaConfig"),
    "mpnet": named("MPNetModel", "MPNetConfig"),
    "canine": named("CanineModel", "CanineConfig", local_transformer_stride=4, upsampling_kernel_size=2, downsampling_rate=2, num_hash_buckets=16),
    "longformer": named("LongformerModel", "LongformerConfig", attention_window=4),
    "xlnet": named("XLNetModel", "XLNetConfig"),
    "squeezebert": named("SqueezeBertModel", "SqueezeBertConfig"),
    "fnet": named("FNetModel", "FNetConfig"),
    "convnext-v2": named("ConvNextV2Model", "ConvNextV2Config"),
    "efficientnet": named("EfficientNetModel", "EfficientNetConfig", image_size=64, width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320, initializer_range=0.3),
    "pvt": named("PvtModel", "PvtConfig"),
    "dpt": named("DPTForSemanticSegmentation", "DPTConfig", num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 16, 16, 16], fusion_hidden_size=16),
    "videomae": named("VideoMAEModel", "VideoMAEConfig", lambda: {"pixel_values": images(32, 4 * 3).reshape(2, 4, 3, 32, 32)}, num_frames=4),
    "vit-msn": named("ViTMSNModel", "ViTMSNConfig"),
    "hubert": named("HubertModel", "HubertConfig"),
    "sew": named("SEWModel", "SEWConfig", **_SPEECH),
    "wavlm": named("WavLMModel", "WavLMConfig"),
    "blip-text": named("BlipTextModel", "BlipTextConfig"),
    "swinv2": named("Swinv2Model", "Swinv2Config"),
    "mobilevit": named("MobileViTModel", "MobileViTConfig"),
    "olmo2": named("Olmo2ForCausalLM", "Olmo2Config"),
    "cohere": named("CohereForCausalLM", "CohereConfig"),
    "pegasus": named("PegasusModel", "PegasusConfig"),
    "codegen": named("CodeGenForCausalLM", "CodeGenConfig", rotary_dim=4),
    "reformer": named("ReformerModel", "ReformerConfig", lambda: {"input_ids": tokens()}, attn_layers=["local", "local"], axial_pos_shape=[2, 4], axial_pos_embds_dim=[16, 16], attention_head_size=8, feed_forward_size=64, local_attn_chunk_length=4, lsh_attn_chunk_length=4, num_buckets=2, hash_seed=0, is_decoder=False),
    "nystromformer": named("NystromformerModel", "NystromformerConfig", num_landmarks=8, segment_means_seq_len=8),
    "perceiver": _perceiver,
    "m2m100": named("M2M100Model", "M2M100Config", encoder_layerdrop=0.0, decoder_layerdrop=0.0),
    "blenderbot": named("BlenderbotModel", "BlenderbotConfig"),
    "marian": named("MarianModel", "MarianConfig"),
    "layoutlm": named("LayoutLMModel", "LayoutLMConfig"),
    "splinter": named("SplinterModel", "SplinterConfig"),
    "xglm": named("XGLMForCausalLM", "XGLMConfig"),
    "granite": named("GraniteForCausalLM", "GraniteConfig"),
    "starcoder2": named("Starcoder2ForCausalLM", "Starcoder2Config"),
    "gemma3": named("Gemma3ForCausalLM", "Gemma3TextConfig", sliding_window=4),
    "qwen2-moe": named("Qwen2MoeForCausalLM", "Qwen2MoeConfig"),
    "dinov2": named("Dinov2Model", "Dinov2Config"),
    "maskformer": _maskformer,
    "poolformer": named("PoolFormerModel", "PoolFormerConfig", hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "cvt": named("CvtModel", "CvtConfig", embed_dim=[8, 16, 16], num_heads=[1, 2, 2], depth=[1, 2, 3]),
    "levit": named("LevitModel", "LevitConfig", image_size=64, hidden_sizes=[16, 32, 32], num_attention_heads=[2, 4, 4], depths=[1, 1, 1], key_dim=[8, 8, 8], patch_size=16),
    "glpn": named("GLPNForDepthEstimation", "GLPNConfig", hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, image_size=64),
    "sam": _sam,
    "siglip": _siglip,
    "blip": _blip,
    "speecht5": named("SpeechT5ForSpeechToText", "SpeechT5Config", lambda: {"input_values": torch.randn((2, 400), generator=torch.Generator().manual_seed(2)), "decoder_input_ids": tokens(2, 5), "use_cache": False}, **_SPEECH, encoder_layerdrop=0.0, decoder_layerdrop=0.0, positional_dropout=0.0),
    "mamba2": named("Mamba2ForCausalLM", "Mamba2Config", num_heads=8, head_dim=8, state_size=8, chunk_size=4, n_groups=1),
    **{key: base(key) for key in _BY_TYPE},
    "rwkv": named("RwkvForCausalLM", "RwkvConfig", attention_hidden_size=32),
    "unet1d": _diffusers("UNet1DModel", {"block_out_channels": (8, 16), "in_channels": 6, "out_channels": 6, "time_embedding_type": "positional", "use_timestep_embedding": True, "flip_sin_to_cos": False, "freq_shift": 1.0, "act_fn": "swish", "out_block_type": "OutConv1DBlock", "mid_block_type": "MidResTemporalBlock1D", "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"), "up_block_types": ("UpResnetBlock1D",)}, lambda: {"sample": torch.randn(2, 6, 16), "timestep": _STEPS}),
    "vq": _diffusers("VQModel", {"block_out_channels": (8, 16), "norm_num_groups": 4, "latent_channels": 4, "num_vq_embeddings": 16, "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}, lambda: {"sample": images(16)}),
    "transformer2d": _diffusers("Transformer2DModel", {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 16, "norm_num_groups": 4, "cross_attention_dim": 12}, lambda: {"hidden_states": images(8, 16), "encoder_hidden_states": torch.randn(2, 5, 12)}),
    "controlnet": _diffusers(
        "ControlNetModel", {"block_out_channels": (16, 16), "layers_per_block": 1, "norm_num_groups": 8, "in_channels": 4, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "cross_attention_dim": 16, "attention_head_dim": 8, "conditioning_embedding_out_channels": (8, 8)},
        lambda: {"sample": images(16, 4), "timestep": _STEPS, "encoder_hidden_states": torch.randn(2, 5, 16), "controlnet_cond": images(32)},
    ),
    "sd3": _diffusers(
        "SD3Transformer2DModel", {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2, "joint_attention_dim": 12, "caption_projection_dim": 16, "pooled_projection_dim": 10, "out_channels": 4, "pos_embed_max_size": 8},
        lambda: {"hidden_states": images(8, 4), "encoder_hidden_states": torch.randn(2, 5, 12), "pooled_projections": torch.randn(2, 10), "timestep": _STEPS},
    ),
    "flux": _diffusers(
        "FluxTransformer2DModel", {"patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 12, "pooled_projection_dim": 10, "axes_dims_rope": (4, 4, 8)},
        lambda: {"hidden_states": torch.randn(2, 16, 4), "encoder_hidden_states": torch.randn(2, 5, 12), "pooled_projections": torch.randn(2, 10), "timestep": torch.tensor([0.1, 0.5]), "img_ids": torch.randint(0, 4, (16, 3)).float(), "txt_ids": torch.zeros(5, 3)},
    ),
    "autoencoder-tiny": _diffusers("AutoencoderTiny", {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)}, lambda: {"sample": images(16)}),
    "pixart": _diffusers(
        "PixArtTransformer2DModel", {"num_layers": 1, "patch_size": 2, "attention_head_dim": 4, "num_attention_heads": 2, "in_channels": 4, "out_channels": 8, "cross_attention_dim": 8, "caption_channels": 12, "sample_size": 8, "use_additional_conditions": False},
        lambda: {"hidden_states": images(8, 4), "encoder_hidden_states": torch.randn(2, 5, 12), "timestep": _STEPS},
    ),
    "sana": _diffusers(
        "SanaTransformer2DModel", {"patch_size": 1, "in_channels": 4, "out_channels": 4, "num_layers": 1, "attention_head_dim": 4, "num_attention_heads": 2, "num_cross_attention_heads": 2, "cross_attention_head_dim": 4, "cross_attention_dim": 8, "caption_channels": 8, "sample_size": 8},
        lambda: {"hidden_states": images(8, 4), "encoder_hidden_states": torch.randn(2, 5, 8), "timestep": _STEPS},
    ),
    "aura-flow": _diffusers(
        "AuraFlowTransformer2DModel", {"sample_size": 8, "patch_size": 2, "in_channels": 4, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 8, "num_attention_heads": 2, "caption_projection_dim": 16, "joint_attention_dim": 12, "out_channels": 4, "pos_embed_max_size": 64},
        lambda: {"hidden_states": images(8, 4), "encoder_hidden_states": torch.randn(2, 5, 12), "timestep": _STEPS.float()},
    ),
    "ltx-video": _diffusers(
        "LTXVideoTransformer3DModel", {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8, "cross_attention_dim": 16, "num_layers": 1, "caption_channels": 12},
        lambda: {"hidden_states": torch.randn(2, 32, 4), "encoder_hidden_states": torch.randn(2, 5, 12), "timestep": _STEPS, "encoder_attention_mask": torch.ones(2, 5).bool(), "num_frames": 2, "height": 4, "width": 4},
    ),
    "prior": _diffusers(
        "PriorTransformer", {"num_attention_heads": 2, "attention_head_dim": 4, "num_layers": 2, "embedding_dim": 8, "num_embeddings": 7, "additional_embeddings": 4},
        lambda: {"hidden_states": torch.randn(2, 8), "timestep": _STEPS, "proj_embedding": torch.randn(2, 8), "encoder_hidden_states": torch.randn(2, 7, 8)},
    ),
    "unet3d-condition": _diffusers(
        "UNet3DConditionModel", {"block_out_channels": (4, 8), "norm_num_groups": 4, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"), "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "cross_attention_dim": 8, "attention_head_dim": 2, "layers_per_block": 1, "sample_size": 8},
        lambda: {"sample": torch.randn(2, 4, 2, 8, 8), "timestep": _STEPS, "encoder_hidden_states": torch.randn(2, 5, 8)},
    ),
}  # fmt: skip


def others() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    """Every other architecture of transformers that a configuration made small can build: base models, by model type."""
    return {key: base(key) for key in MODEL_MAPPING_NAMES if key in CONFIG_MAPPING and key not in {**MODELS, **BEYOND}}
