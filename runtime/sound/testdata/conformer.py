"""Calls MNN::AUDIO::conformer_fbank, which the module MNN.audio lacks, in the library of the wheel."""
import ctypes

import numpy as np


def conformer(wave):
    """The features of samples, [1, 128, frames], with the defaults of the engine."""
    import _mnncengine
    import MNN.expr as expr

    f = ctypes.CDLL(_mnncengine.__file__)._ZN3MNN5AUDIO15conformer_fbankENS_7Express4VARPEiiiiif
    f.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 5 + [ctypes.c_float]
    f.restype = ctypes.c_void_p
    samples, features = expr.const(wave.tolist(), [wave.size], expr.NHWC, expr.float), expr.const([0.0], [1], expr.NHWC, expr.float)
    # A variable of Python has a pointer to a VARP, a shared pointer, after its head. One is passed by its address, and returned to one.
    held = [ctypes.cast(id(x) + 16, ctypes.POINTER(ctypes.c_void_p))[0] for x in (samples, features)]
    result = (ctypes.c_char * 16)()
    f(ctypes.addressof(result), held[0], 16000, 128, 512, 160, 400, 0.97)
    ctypes.memmove(held[1], result, 16)
    return np.array(features.read(), dtype="<f4")
