"""Made the .npy and .npz files beside this one with numpy 1.24.2: python3 spec/data/numpy_files.py, in this folder."""
import numpy as np

np.save("big_fortran.npy", np.asfortranarray(np.arange(24, dtype=">f8").reshape(2, 3, 4)))
np.lib.format.write_array(open("version2.npy", "wb"), np.arange(3, dtype="<i2"), version=(2, 0))
np.lib.format.write_array(open("version3.npy", "wb"), np.array(True), version=(3, 0))
np.save("complex.npy", np.zeros(2, complex))
np.save("text.npy", np.array(["ab"]))
np.save("structured.npy", np.zeros(2, dtype=[("a", "<f4")]))
np.save("object.npy", np.array([None], dtype=object), allow_pickle=True)
x = np.arange(100, dtype=">i4").reshape(10, 10)
np.savez("stored.npz", **{"x": x, "a/b": np.float16(2.5), "none": np.zeros((0, 3), "<u2")})
np.savez_compressed("deflated.npz", **{"x": x, "a/b": np.float16(2.5), "none": np.zeros((0, 3), "<u2")})
