#include "rkv-common-args.h"

#include "rkv-options.h"

#include "arg.h"
#include "common.h"

namespace {

// A handler of the common parser is a plain function, so each row of the table gets one.
template <size_t ROW>
void handle(common_params & params, const std::string & value) {
    rkv_option_table()[ROW].set(params.rkv, value);
}

using handler_t = void (*)(common_params &, const std::string &);
constexpr handler_t HANDLERS[] = { handle<0>, handle<1>, handle<2>, handle<3>, handle<4>, handle<5>, handle<6>, handle<7> };

} // namespace

std::vector<common_arg> rkv_common_args() {
    const auto & table = rkv_option_table();
    GGML_ASSERT(table.size() == sizeof(HANDLERS)/sizeof(HANDLERS[0]));

    std::vector<common_arg> res;
    for (size_t i = 0; i < table.size(); ++i) {
        common_arg arg({ table[i].name }, table[i].hint, table[i].help, HANDLERS[i]);
        res.push_back(arg.set_env(table[i].env));
    }
    return res;
}
