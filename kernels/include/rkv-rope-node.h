#pragma once

// rolling-kv: a GGML_OP_ROPE node that moves rows of K which were turned before to another position.
//
// The node is one of ggml_rope_ext_inplace, its positions are the moves (0: the row stays as it is, bit for bit). A backend that
// does not know the mark computes it as any other; the CPU backend takes our kernel, which reckons angles in f64: the angle of a long
// move has no error of its own.

#include "ggml.h"

#define RKV_ROPE_PARAM_MARK 0 // of op_params; ggml itself has no use for it
#define RKV_ROPE_MARK       0x524b5653

// Channels of a head that can be turned.
#define RKV_ROPE_MAX 1024
