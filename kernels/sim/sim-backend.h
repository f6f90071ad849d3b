#pragma once

// Events of the simulated device, and what its registry offers by name.

#include "ggml-backend.h"
#include "rkv-step.h"

namespace rkv_sim {

void * event_new();
void   event_free(void * e);
void   event_synchronize(void * e);

void backend_set_n_threads(ggml_backend_t b, int n_threads);
bool backend_staging_set(ggml_backend_t b, const rkv_staging_params * params, const rkv_staging_need * need);
void backend_staging_totals(ggml_backend_t b, rkv_staging_totals * totals);

} // namespace rkv_sim
