// A vocabulary for models that were never trained: a valid byte-level BPE with the control tokens of V4.
#pragma once

#include "text/vocabulary.h"

namespace lockstep {

/// `size` tokens: BOS, EOS, pad, the 256 bytes, merges of letters, and the added tokens. From 128,000 + 1,280 tokens on
/// everything has the id that it has in V4; a smaller vocabulary ends with the named control tokens, in the same order.
/// Throws Error::bad_argument if `size` has no room for those.
Vocabulary synth_vocabulary(int size);

}  // namespace lockstep
