# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
from trellis.random.distributions import beta as beta
from trellis.random.distributions import dirichlet as dirichlet
from trellis.random.distributions import exponential as exponential
from trellis.random.distributions import gamma as gamma
from trellis.random.distributions import gumbel_softmax as gumbel_softmax
from trellis.random.distributions import poisson as poisson
from trellis.random.distributions import truncated_normal as truncated_normal
from trellis.random.keys import Key as Key
from trellis.random.keys import fold_in as fold_in
from trellis.random.keys import split_key as split_key
from trellis.random.samplers import bernoulli as bernoulli
from trellis.random.samplers import choice as choice
from trellis.random.samplers import multinomial as multinomial
from trellis.random.samplers import permutation as permutation
from trellis.random.samplers import randint as randint
from trellis.random.samplers import random_normal as random_normal
from trellis.random.samplers import random_uniform as random_uniform
from trellis.random.samplers import shuffle as shuffle
from trellis.random.state import seed as seed

modules: list
