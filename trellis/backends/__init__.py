"""The four frameworks as plain namespaces of ops. A backend is one folder here and one row in `core.dispatch.BACKENDS`."""

# The functions of every backend's meta.py; `assembly.Backend` has more, which a backend may leave out.
META = ["asarray", "astype", "constant", "default_device", "device_of", "devices", "dlpack", "dlpack_device", "dtype_of"]
META += ["from_dlpack", "from_numpy", "is_traced", "item", "native_device", "native_dtype", "rank_of", "shape_of"]
META += ["to_device", "to_numpy"]
