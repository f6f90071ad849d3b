#include "rkv-common-args.h"

#include "rkv-options.h"

#include "arg.h"
#include "common.h"

#include <utility>

namespace {

// A handler of the common parser is a plain function, so each row of the table gets one.
template <size_t ROW>
void handle(common_params & params, const std::string & value) {
    rkv_option_table()[ROW].set(params.rkv, value);
}

using handler_t = void (*)(common_params &, const std::string &);

template <size_t... ROWS>
std::vector<handler_t> handlers(std::index_sequence<ROWS...>) {
    return { handle<ROWS>... };
}

} // namespace

std::vector<common_arg> rkv_common_args() {
    const auto & table = rkv_option_table();
    const auto   all   = handlers(std::make_index_sequence<RKV_N_OPTION>());

    std::vector<common_arg> res;
    for (size_t i = 0; i < table.size(); ++i) {
        common_arg arg({ table[i].name }, table[i].hint, table[i].help, all[i]);
        res.push_back(arg.set_env(table[i].env));
    }
    return res;
}
