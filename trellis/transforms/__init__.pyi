# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from trellis.transforms.compile import compile as compile
from trellis.transforms.control import associative_scan as associative_scan
from trellis.transforms.control import cond as cond
from trellis.transforms.control import fori_loop as fori_loop
from trellis.transforms.control import map as map
from trellis.transforms.control import rnn as rnn
from trellis.transforms.control import scan as scan
from trellis.transforms.control import switch as switch
from trellis.transforms.control import while_loop as while_loop
from trellis.transforms.gradients import bind_custom_gradient_function as bind_custom_gradient_function
from trellis.transforms.gradients import execute_with_gradients as execute_with_gradients
from trellis.transforms.gradients import grad as grad
from trellis.transforms.gradients import hessian as hessian
from trellis.transforms.gradients import jac as jac
from trellis.transforms.gradients import jvp as jvp
from trellis.transforms.gradients import set_with_grads as set_with_grads
from trellis.transforms.gradients import unset_with_grads as unset_with_grads
from trellis.transforms.gradients import value_and_grad as value_and_grad
from trellis.transforms.gradients import vjp as vjp
from trellis.transforms.gradients import with_grads as with_grads
from trellis.transforms.recomputation import checkpoint as checkpoint
from trellis.transforms.vmap import vmap as vmap

modules: list
