#!/bin/bash
# Everything that is to be shown on a machine with a card, in one command and under eight minutes.
#
#   gpu.sh                      on the card, with what `cargo xtask cuda bundle` put beside this script
#   gpu.sh --dry-run            the same on a simulated device, with small sizes
#
# Options:
#   --bundle DIR   folder with bin/ and model.gguf [default: the script's own]
#   --out DIR      folder for logs and report.json [default: gpu-report in the current folder]
#   --libs DIR     folder with NVIDIA's libraries, if neither the bundle nor the system has them; may be given several times
#   --device NAME  the card [default: CUDA0]
#   --threads N    threads of the host [default: up to 8; with --dry-run 1]
#   --only LIST    only these steps, with commas between them
#   --inject STEP  give that step an option that it does not know: it must be seen to fail
#   --list         print the names of the steps
#
# Each step has a time limit and a log of its own, and the next one runs whatever became of it. A table comes at the end.
# Exit codes: 0 nothing failed, 1 something did, 2 it could not start.
set -u

STEPS="nvidia-smi doctor link ops-rkv ops-flash ops-rows logits-f16 logits-q8_0 logits-host niah cliff \
engine-stream engine-host engine-hybrid engine-auto graphs-on graphs-off sanitizer"
TOTAL_S=460

usage() {
    printf 'error: %s\n  next: see the top of %s\n' "$1" "$0" >&2
    exit 2
}

bundle=$(cd "$(dirname "$0")" && pwd)
out=gpu-report
device=CUDA0
dry=no
threads=
only=
inject=
libs=
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=yes; shift; continue ;;
        --list) printf '%s\n' $STEPS; exit 0 ;;
        --bundle|--out|--libs|--device|--threads|--only|--inject) ;;
        *) usage "there is no option $1" ;;
    esac
    [ $# -ge 2 ] || usage "$1 needs a value"
    case $1 in
        --bundle) bundle=$2 ;;
        --out) out=$2 ;;
        --libs) libs=$libs:$2 ;;
        --device) device=$2 ;;
        --threads) threads=$2 ;;
        --only) only=$2 ;;
        --inject) inject=$2 ;;
    esac
    shift 2
done
for name in ${only//,/ } $inject; do
    case " $STEPS " in *" $name "*) ;; *) usage "there is no step $name" ;; esac
done

bin=$bundle/bin
model=$bundle/model.gguf
for file in "$bin/rolling-kv" "$bin/llama-bench" "$bin/test-rkv-device" "$bin/test-backend-ops" "$model"; do
    [ -f "$file" ] || usage "$file is not there; \`cargo xtask cuda bundle\` makes the folder"
done
mkdir -p "$out" || usage "the folder $out cannot be made"
rm -f "$out"/*.log "$out"/*.out "$out"/*.json
[ -z "$libs" ] || export LD_LIBRARY_PATH="${libs#:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# Sizes, and where each program computes.
cores=$(nproc 2>/dev/null || echo 1)
if [ "$dry" = yes ]; then
    device=SIM0
    sim=mem=512MiB,link=20GB/s,latency=1us
    on=(--device "sim:$sim")
    calibrated=("${on[@]}")
    native=(env "ROLLING_KV_SIM=$sim")
    small=tiny:byte-pairs
    : "${threads:=1}"
    ctx=512; tile=32; windows=480,256,128
    needles=(--lengths 256 --depths 50)
    depth=96; bench_windows=128,64,0; bench_tokens=4; bench_runs=1
    words=40; run_ctx=256; run_window=128; run_tokens=8
    flash_filter='hsk=64,hsv=64,nh=4,nr23=\[1,1\],kv=113,nb=1,mask=1,sinks=0'
    rows_filter='type_dst=q8_0'
else
    on=()
    native=(env)
    calibrated=(--device "$device")
    small=$model
    : "${threads:=$((cores < 8 ? cores : 8))}"
    ctx=2048; tile=128; windows=1920,1024,512
    needles=(--lengths 512,2048 --depths 0,50,border)
    depth=4096; bench_windows=4352,3072,2048,1024,0; bench_tokens=32; bench_runs=3
    words=900; run_ctx=4096; run_window=512; run_tokens=64
    flash_filter='.*'
    rows_filter='.*'
fi

names=(); results=(); seconds=(); notes=()
started=$SECONDS

record() { # NAME RESULT SECONDS NOTE
    names+=("$1"); results+=("$2"); seconds+=("$3"); notes+=("$4")
    printf '%-14s %-4s %4s s  %s\n' "$1" "$2" "$3" "$4" >&2
}

wanted() {
    [ -z "$only" ] && return 0
    case ",$only," in *",$1,"*) return 0 ;; *) return 1 ;; esac
}

skip() { # NAME WHY
    if wanted "$1"; then record "$1" SKIP 0 "$2"; fi
}

# Runs a step. What it writes to standard output goes to NAME.out, the rest to NAME.log.
# KIND `whole` must end in time; of `part` and `memory` as much is done as the time allows, and nothing of it may have failed.
step() { # KIND NAME LIMIT COMMAND...
    local kind=$1 name=$2 limit=$3 left rc began took
    shift 3
    wanted "$name" || return 0
    if [ -n "$missing" ] && [ "$name" != doctor ]; then
        record "$name" SKIP 0 "$missing"
        return 0
    fi
    left=$((TOTAL_S - SECONDS + started))
    if [ "$left" -lt 5 ]; then
        record "$name" SKIP 0 "no time is left of $TOTAL_S s"
        return 0
    fi
    [ "$limit" -le "$left" ] || limit=$left
    [ "$inject" != "$name" ] || set -- "$@" --no-such-option
    printf '%s\n' "$*" >"$out/$name.log"
    began=$SECONDS
    timeout --kill-after=5 "$limit" "$@" >"$out/$name.out" 2>>"$out/$name.log" </dev/null
    rc=$?
    took=$((SECONDS - began))
    judge "$kind" "$name" "$rc" "$took" "$limit"
}

judge() { # KIND NAME RC SECONDS LIMIT
    local cases
    if [ "$1" = part ]; then
        cases=$(grep -c 'OK' "$out/$2.out")
        if grep -q 'FAIL' "$out/$2.out"; then
            record "$2" FAIL "$4" "cases failed, see $2.out"
        elif [ "$3" = 0 ] && [ "$cases" -gt 2 ]; then
            record "$2" PASS "$4" "$cases lines OK, all cases"
        elif [ "$3" = 124 ] && [ "$cases" -gt 2 ]; then
            record "$2" PASS "$4" "$cases lines OK within the $5 s given, none failed"
        else
            record "$2" FAIL "$4" "exit code $3 after $cases lines OK, see $2.log"
        fi
        return 0
    fi
    if [ "$1" = memory ] && [ "$3" = 124 ]; then
        if grep -Eq '^=+ +(Invalid|Program hit|Race|ERROR SUMMARY: [1-9])' "$out/$2.out"; then
            record "$2" FAIL "$4" "memory errors, see $2.out"
        else
            record "$2" PASS "$4" "no memory error within the $5 s given, the tests had not ended"
        fi
        return 0
    fi
    case $3 in
        0) record "$2" PASS "$4" "" ;;
        124|137) record "$2" FAIL "$4" "did not end within $5 s" ;;
        *) record "$2" FAIL "$4" "exit code $3, see $2.log" ;;
    esac
}

missing=
if ! command -v nvidia-smi >/dev/null; then
    skip nvidia-smi "there is no nvidia-smi"
else
    step whole nvidia-smi 20 nvidia-smi -q
fi
step whole doctor 40 "$bin/rolling-kv" doctor --json
# Without the card, everything below would run on the CPU and prove nothing.
if [ "$dry" = no ]; then
    "$bin/llama-bench" --list-devices >"$out/devices.log" 2>&1
    if ! grep -q "$device" "$out/devices.log"; then
        missing="there is no device $device, see devices.log"
        record card FAIL 0 "$missing"
    fi
fi
step whole link 60 "$bin/rolling-kv" calibrate "${calibrated[@]}" --repeats 3 --threads "$threads" --out "$out/rates.json" --json
step whole ops-rkv 90 "${native[@]}" "$bin/test-rkv-device" "$device"
step part ops-flash $([ $dry = yes ] && echo 12 || echo 60) \
    "${native[@]}" "$bin/test-backend-ops" test -b "$device" -j "$threads" -o FLASH_ATTN_EXT -p "$flash_filter"
step part ops-rows $([ $dry = yes ] && echo 8 || echo 25) \
    "${native[@]}" "$bin/test-backend-ops" test -b "$device" -j "$threads" -o SET_ROWS -p "$rows_filter"

# The gate compares each window with a resident cache; the first one leaves one tile in host memory, the others half and three quarters.
# Bits are the card's alone where the card attends to everything. What the host attends to has the bits of its own kernel, and is
# judged by stock's noise.
spilled=(-m "$small" --ctx $ctx --tile-cells $tile --window-cells $windows --threads "$threads" ${on[@]+"${on[@]}"})
for type in f16 q8_0; do
    step whole logits-$type 60 "$bin/rolling-kv" gate logit-equiv "${spilled[@]}" --cache-type $type --tail-engine stream --json "$out/logits-$type.json"
done
cat >"$out/host.toml" <<'SPEC'
version = 1
gate = "logit-equiv"
about = "The host attends to the tail beside the card"

[thresholds.other-bits]
value = 1e12
why = "a partial of the host has the bits of the CPU's kernel, and one of the card those of the card's"
SPEC
step whole logits-host 60 "$bin/rolling-kv" gate run "$out/host.toml" "${spilled[@]}" --tail-engine host --json "$out/logits-host.json"
step whole niah 60 "$bin/rolling-kv" gate niah -m "$model" "${needles[@]}" --window-percent 25 --tail-engine stream --threads "$threads" \
    ${on[@]+"${on[@]}"} --json "$out/niah.json"
step whole cliff 70 "${native[@]}" "$bin/llama-bench" -m "$model" -p 0 -n $bench_tokens -d $depth -r $bench_runs -t "$threads" -fa on -o json \
    --kv-window-cells $bench_windows

for ((word = 0; word < words; word++)); do
    printf 'Line %d of the log says that all is well. ' "$word"
done >"$out/prompt.txt"
# A line of the prompt is ten tokens or so: keep it within the context.
head -c $((run_ctx * 2)) "$out/prompt.txt" >"$out/prompt.cut" && mv "$out/prompt.cut" "$out/prompt.txt"
for engine in stream host hybrid auto; do
    step whole engine-$engine 25 "$bin/rolling-kv" run -m "$model" --file "$out/prompt.txt" -n $run_tokens --temp 0 --ctx $run_ctx \
        --window-cells $run_window --tail-engine $engine --threads "$threads" ${on[@]+"${on[@]}"} --json
done

bench=("${native[@]}" "$bin/llama-bench" -m "$model" -p 0 -n $bench_tokens -d $((depth / 2)) -r $bench_runs -t "$threads" -fa on -o json
    --kv-window-cells "$depth,$((depth / 4))")
step whole graphs-on 40 "${bench[@]}"
step whole graphs-off 40 env GGML_CUDA_DISABLE_GRAPHS=1 "${bench[@]}"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$sanitizer" ]; then
    skip sanitizer "there is no compute-sanitizer"
elif [ "$dry" = yes ]; then
    skip sanitizer "it looks at cards, and this is a dry run"
else
    step memory sanitizer 120 "$sanitizer" --tool memcheck --error-exitcode 3 "$bin/test-rkv-device" "$device"
fi

# The report.
text() { # a JSON string
    local said=${1//\\/\\\\}
    said=${said//\"/\\\"}
    said=$(printf '%s' "$said" | tr -d '\000-\037')
    printf '"%s"' "$said"
}

# The JSON that a step has left: its own file, or its standard output.
found() { # NAME
    local file
    for file in "$out/$1.json" "$out/$1.out"; do
        case $(head -c 1 "$file" 2>/dev/null) in
            '{'|'[')
                if ! command -v python3 >/dev/null || python3 -m json.tool "$file" >/dev/null 2>&1; then
                    cat "$file"
                    return 0
                fi
                ;;
        esac
    done
    printf 'null'
}

count() { # RESULT
    local result n=0
    for result in ${results[@]+"${results[@]}"}; do [ "$result" != "$1" ] || n=$((n + 1)); done
    printf '%d' $n
}

{
    printf '{"script":"gates/gpu.sh","dry_run":%s,"device":' "$([ $dry = yes ] && echo true || echo false)"
    text "$device"
    printf ',"system":'; text "$(uname -srm)"
    printf ',"cores":%d,"threads":%d,"seconds":%d' "$cores" "$threads" $((SECONDS - started))
    printf ',"passed":%d,"failed":%d,"skipped":%d,"steps":[' "$(count PASS)" "$(count FAIL)" "$(count SKIP)"
    for ((i = 0; i < ${#names[@]}; i++)); do
        [ $i -eq 0 ] || printf ','
        printf '\n{"step":'; text "${names[i]}"
        printf ',"result":"%s","seconds":%d,"note":' "${results[i]}" "${seconds[i]}"; text "${notes[i]}"
        printf ',"command":'; text "$(head -n 1 "$out/${names[i]}.log" 2>/dev/null)"
        printf ',"found":'; found "${names[i]}"
        printf '}'
    done
    printf '\n]}\n'
} >"$out/report.json"

printf '\n%-14s %-6s %7s  %s\n' step result seconds note
for ((i = 0; i < ${#names[@]}; i++)); do
    printf '%-14s %-6s %7d  %s\n' "${names[i]}" "${results[i]}" "${seconds[i]}" "${notes[i]}"
done
printf '\n%d passed, %d failed, %d skipped in %d s; %s\n' "$(count PASS)" "$(count FAIL)" "$(count SKIP)" $((SECONDS - started)) \
    "$out/report.json"
[ "$(count FAIL)" = 0 ]
