#pragma once

// The one place where partials meet.

#include <math.h>

namespace rkv {

// Running softmax state of one (head, query): `max` and `sum` of the exponentials so far, o: [d_v] unnormalised.
struct merge_state {
    float   max;
    float   sum;
    float * o;
};

// Nothing merged yet; clears o.
merge_state merge_begin(float * o, int d_v);

// Adds a tile's partial (max, sum, o: [d_v]). An empty one (sum == 0) leaves the state as it was.
void merge_partial(merge_state & state, float max, float sum, const float * o, int d_v);

// Ends the row: counts the sink when there is one (NULL: none) and divides by the sum. A row that saw nothing is zero.
void merge_finish(merge_state & state, const float * sink, int d_v);

} // namespace rkv
