"""The four frameworks as plain namespaces of ops. A backend is one folder here and one row in `core.dispatch.BACKENDS`."""

# The functions of every backend's meta.py.
META = (
    "asarray", "astype", "constant", "default_device", "default_int", "device_of", "devices", "dlpack", "dlpack_device",
    "dtype_of", "from_dlpack", "from_numpy", "holds_gradient", "is_traced", "item", "native_device", "native_dtype", "rank_of",
    "shape_of", "to_device", "to_numpy", "version",
)  # fmt: skip
