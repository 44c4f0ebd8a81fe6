"""Calls MNN::AUDIO::conformer_fbank and usm_fbank, which the module MNN.audio lacks, in the library of the wheel."""
import ctypes

import numpy as np


def conformer(wave):
    """The features of samples, [1, 128, frames], with the defaults of the engine."""
    return called("_ZN3MNN5AUDIO15conformer_fbankENS_7Express4VARPEiiiiif", wave, 400, 0.97)


def usm(wave):
    """Those of engines from 3.6.0 on, in the order [1, 128, frames]; the engine has [1, frames, 128]."""
    return called("_ZN3MNN5AUDIO9usm_fbankENS_7Express4VARPEiiiiif", wave, 320, 0.001).transpose(0, 2, 1)


def called(name, wave, length, factor):
    import _mnncengine
    import MNN.expr as expr

    f = getattr(ctypes.CDLL(_mnncengine.__file__), name)
    f.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 5 + [ctypes.c_float]
    f.restype = ctypes.c_void_p
    samples, features = expr.const(wave.tolist(), [wave.size], expr.NHWC, expr.float), expr.const([0.0], [1], expr.NHWC, expr.float)
    # A variable of Python has a pointer to a VARP, a shared pointer, after its head. One is passed by its address, and returned to one.
    held = [ctypes.cast(id(x) + 16, ctypes.POINTER(ctypes.c_void_p))[0] for x in (samples, features)]
    result = (ctypes.c_char * 16)()
    f(ctypes.addressof(result), held[0], 16000, 128, 512, 160, length, factor)
    ctypes.memmove(held[1], result, 16)
    return np.array(features.read(), dtype="<f4")
