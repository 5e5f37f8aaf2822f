"""Random numbers of the sampler: exponential variates from a counter-based generator.

Variate ``i`` depends only on ``(key, id, sweep, side, i)``. A result therefore does not depend on the number of
threads, on the order or the split of a batch, or on the machine. The generator is Philox 4x32 with 7 rounds, the
smallest number that passes BigCrush [1]_.

References
----------
.. [1] J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

ROUNDS = 7
_LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter: NDArray[np.uint64], key: tuple[int, int], rounds: int = ROUNDS) -> NDArray[np.uint32]:
    """Return the four 32-bit words that Philox 4x32 gives for each counter.

    Parameters
    ----------
    counter : array of uint64, shape (4, n)
        The counters; each entry is below 2**32.
    key : pair of int
        The key; each entry is below 2**32.
    rounds : int
        Number of rounds.

    Returns
    -------
    array of uint32, shape (4, n)
        The words of the n counters.

    Examples
    --------
    The first test vector that was published with the generator:

    >>> import numpy as np
    >>> [f"{w:08x}" for w in philox4x32(np.zeros((4, 1), np.uint64), (0, 0), rounds=10)[:, 0]]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        even = c0 * np.uint64(0xD2511F53)
        odd = c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (odd >> np.uint64(32)) ^ c1 ^ np.uint64(k0), odd & _LOW
        c2, c3 = (even >> np.uint64(32)) ^ c3 ^ np.uint64(k1), even & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def exponentials(
    key: int, id: int, sweep: int, side: int, size: int, dtype: DTypeLike = np.float64
) -> NDArray[np.floating]:
    r"""Return standard exponential variates, all strictly positive.

    .. math:: \theta_i = -\log u_i

    with :math:`u_i` in the open unit interval: ``(word + 1/2) / 2**32`` in float64 and ``(word // 2**9 + 1/2) / 2**23``
    in float32, from the same words.

    Parameters
    ----------
    key, id : int
        Of the chain: the key of the run and the id of the problem, each below 2**64.
    sweep : int
        Index of the sweep, below 2**31.
    side : {0, 1}
        0 for g, 1 for h.
    size : int
        Number of variates.
    dtype : {float32, float64}
        Precision of the variates.

    Returns
    -------
    array of shape (size,)

    Examples
    --------
    >>> theta = exponentials(key=7, id=0, sweep=0, side=0, size=4)
    >>> bool((theta == exponentials(7, 0, 0, 0, 1000)[:4]).all())
    True
    """
    groups = -(-size // 32)
    counter = np.empty((4, 8 * groups), np.uint64)
    counter[0] = np.arange(8 * groups)
    counter[1] = 2 * sweep + side
    counter[2] = id & 0xFFFFFFFF
    counter[3] = id >> 32
    words = philox4x32(counter, (key & 0xFFFFFFFF, key >> 32))
    # word 16 a + 2 c + b of a group is output 2 a + b of counter c, the order in which the vector kernels produce them
    words = words.reshape(2, 2, groups, 8).transpose(2, 0, 3, 1).reshape(-1)[:size]
    if np.dtype(dtype) == np.float32:
        u = ((words >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    else:
        u = (words.astype(np.float64) + 0.5) * 2.0**-32
    return -np.log(u)
