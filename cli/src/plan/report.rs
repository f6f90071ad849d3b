//! A plan as text, as JSON, and as the command lines that get it.

use rolling_kv::{EnginePlan, KvType, ModelShape, Plan, PlanEngine, PlanFit, Rates};
use serde_json::{Value, json};

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;

/// Everything that is said of a plan.
pub struct Report<'a> {
    /// What stands behind -m in the command lines.
    pub model: String,
    pub machine: String,
    pub shape: &'a ModelShape,
    pub rates: &'a Rates,
    pub plan: &'a Plan,
    pub depth: u32,
    pub streams: u32,
    pub types: (KvType, KvType),
    pub tail_types: Option<(KvType, KvType)>,
    pub tile_cells: u32,
}

impl Report<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let mut lines = self.head();
        lines.push(String::new());
        lines.push(self.verdict());
        lines.push(self.on_device());
        if self.plan.tail_bytes > 0 {
            lines.push(self.on_host());
        }
        if self.plan.fit.fits() {
            lines.push(String::new());
            lines.extend(self.speeds());
            lines.push(String::new());
            lines.push(self.run_line());
            lines.push(self.server_line());
        } else {
            lines.push(String::new());
            lines.push(self.advice());
        }
        if self.tail_types.is_some_and(|tail| tail != self.types) && self.plan.tail_bytes > 0 {
            lines.push("note: a tail of another type changes what the model says; `rolling-kv gate logit-equiv` tells by how much".into());
        }
        lines.extend(self.shape.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
    }

    fn head(&self) -> Vec<String> {
        let (k, v) = self.types;
        let cell = self.shape.cell_bytes(k, v) as f64 / 1024.0;
        let sliding = match self.shape.sliding.len() {
            0 => String::new(),
            n => format!(
                "; {n} layers see {} tokens and stay on the device",
                self.shape.sliding_window
            ),
        };
        let read = match self.rates.host_read_bytes_per_s {
            0.0 => String::new(),
            rate => format!(" at {:.1} GB/s", rate / 1e9),
        };
        let kernel = self
            .kernel_rate()
            .map_or("unknown".into(), |rate| format!("{:.1} GB/s", rate / 1e9));
        vec![
            format!(
                "{}: {} layers whose cache grows, {cell:.1} KiB a token (K {k}, V {v}){sliding}; weights {:.2} GiB",
                self.shape.name,
                self.shape.layers.len(),
                self.shape.weight_bytes as f64 / GIB
            ),
            format!(
                "{}: device {:.1} GiB free at {:.0} GB/s; link {:.1} GB/s, {:.1} us; host {:.1} GiB free{read}, its attention {kernel}",
                self.machine,
                self.rates.device_bytes as f64 / GIB,
                self.rates.device_memory_bytes_per_s / 1e9,
                self.rates.to_device_pinned_bytes_per_s / 1e9,
                self.rates.link_latency_s * 1e6,
                self.rates.host_bytes as f64 / GIB
            ),
        ]
    }

    /// Of the tail's type of K.
    fn kernel_rate(&self) -> Option<f64> {
        let (k, _) = self.tail_types.unwrap_or(self.types);
        let found = self
            .rates
            .host_kernel_bytes_per_s
            .iter()
            .find(|(of, _)| *of == k);
        found.map(|(_, rate)| *rate)
    }

    fn verdict(&self) -> String {
        let plan = self.plan;
        match plan.fit {
            PlanFit::Resident => {
                format!("fits: all {} cells of each layer on the device", plan.n_ctx)
            }
            PlanFit::Window => format!(
                "fits with a window: {} of {} cells of each layer on the device, the rest in host memory",
                plan.window_cells, plan.n_ctx
            ),
            PlanFit::NotOnDevice { missing_bytes } => {
                format!(
                    "does NOT fit: the device lacks {:.2} GiB",
                    missing_bytes as f64 / GIB
                )
            }
            PlanFit::NotOnHost { missing_bytes } => {
                format!(
                    "does NOT fit: the host lacks {:.2} GiB for the tail",
                    missing_bytes as f64 / GIB
                )
            }
            _ => "it is not known whether it fits".into(),
        }
    }

    fn on_device(&self) -> String {
        let plan = self.plan;
        let ring = match plan.ring_slots {
            0 => String::new(),
            slots => format!(
                ", ring {:.1} MiB ({slots} slots)",
                f64::from(slots) * plan.slot_bytes as f64 / MIB
            ),
        };
        format!(
            "  device  {:.2} of {:.2} GiB: weights {:.2}, window {:.2}, working memory {:.2} (estimated){ring}",
            plan.device_bytes as f64 / GIB,
            self.rates.device_bytes as f64 / GIB,
            self.shape.weight_bytes as f64 / GIB,
            plan.window_bytes as f64 / GIB,
            plan.compute_bytes as f64 / GIB
        )
    }

    fn on_host(&self) -> String {
        format!(
            "  host    {:.2} of {:.2} GiB: the tail, {} cells of each layer",
            self.plan.tail_bytes as f64 / GIB,
            self.rates.host_bytes as f64 / GIB,
            self.plan.n_ctx - self.plan.window_cells
        )
    }

    fn speeds(&self) -> Vec<String> {
        let tail = match self.plan.step_tail_bytes {
            0 => String::new(),
            bytes => format!(", of which {:.2} GiB lie in the tail", bytes as f64 / GIB),
        };
        let mut lines = vec![
            format!("predicted with {} tokens in the cache{tail}:", self.depth),
            format!(
                "  {:10} {:>10} {:>10} {:>10}",
                "engine", "ms/token", "tokens/s", "by host"
            ),
        ];
        for engine in &self.plan.engines {
            lines.push(self.engine_line(engine));
            if self.plan.step_tail_bytes == 0 {
                break; // they are all the same
            }
        }
        let resident = self.plan.resident_step_s;
        lines.push(format!(
            "  {:10} {:>10.2} {:>10.1} {:>10}   if every cell were on the device",
            "(resident)",
            resident * 1e3,
            self.rate(resident),
            ""
        ));
        lines.push(format!(
            "  prompt: {:.0} tokens/s on average up to there, with any engine",
            1.0 / self.plan.prompt_token_s.max(1e-12)
        ));
        lines
    }

    fn engine_line(&self, engine: &EnginePlan) -> String {
        let chosen = if engine.engine == self.plan.best {
            " <- auto"
        } else {
            ""
        };
        format!(
            "  {:10} {:>10.2} {:>10.1} {:>9.0}% {chosen}",
            engine.engine.name(),
            engine.step_s * 1e3,
            self.rate(engine.step_s),
            engine.host_share * 100.0
        )
        .trim_end()
        .to_owned()
    }

    /// Tokens per second over all sequences.
    fn rate(&self, step_s: f64) -> f64 {
        f64::from(self.streams) / step_s.max(1e-12)
    }

    fn advice(&self) -> String {
        let advice = match self.plan.fit {
            PlanFit::NotOnHost { .. } => {
                "a shorter context, a narrower type of the tail, or a larger window"
            }
            _ if self.shape.weight_bytes > self.rates.device_bytes => {
                "fewer layers on the device (-ngl), a smaller quantisation, or another machine (--list-machines)"
            }
            _ => "a smaller window (--vram, --window-cells), or leave both out",
        };
        format!("next: try {advice}")
    }

    fn words(forms: [(&str, String); 5]) -> String {
        let kept = forms.into_iter().filter(|(_, value)| !value.is_empty());
        kept.map(|(name, value)| format!(" {name} {value}"))
            .collect()
    }

    /// Values of the options for window, tile and engine; empty ones are left out.
    fn options(&self) -> [String; 3] {
        let plan = self.plan;
        let window = if plan.tail_bytes > 0 {
            plan.window_cells.to_string()
        } else {
            String::new()
        };
        let tile = if self.tile_cells == 128 || window.is_empty() {
            String::new()
        } else {
            self.tile_cells.to_string()
        };
        let engine = if plan.best == PlanEngine::Stream || window.is_empty() {
            String::new()
        } else {
            plan.best.to_string()
        };
        [window, tile, engine]
    }

    /// How this project's program gets it.
    pub fn run_line(&self) -> String {
        let [window, tile, engine] = self.options();
        let (k, v) = self.type_words();
        let words = Self::words([
            ("--window-cells", window),
            ("--tile-cells", tile),
            ("--tail-engine", engine),
            ("--cache-type-k", k),
            ("--cache-type-v", v),
        ]);
        format!(
            "rolling-kv run -m {} --ctx {}{words}{}",
            self.model,
            self.plan.n_ctx,
            self.tail_type_words("--tail-type")
        )
    }

    /// How llama.cpp's server gets it.
    pub fn server_line(&self) -> String {
        let [window, tile, engine] = self.options();
        let (k, v) = self.type_words();
        let words = Self::words([
            ("--kv-window-cells", window),
            ("--kv-tail-tile", tile),
            ("--kv-tail-engine", engine),
            ("-ctk", k),
            ("-ctv", v),
        ]);
        let slots = if self.streams > 1 {
            format!(" -np {}", self.streams)
        } else {
            String::new()
        };
        let all = u64::from(self.plan.n_ctx) * u64::from(self.streams);
        format!(
            "llama-server -m {} -ngl 99 -c {all}{slots}{words}{}",
            self.model,
            self.tail_type_words("--kv-tail-type")
        )
    }

    fn type_words(&self) -> (String, String) {
        let word = |of: KvType| {
            if of == KvType::F16 {
                String::new()
            } else {
                of.to_string()
            }
        };
        (word(self.types.0), word(self.types.1))
    }

    fn tail_type_words(&self, option: &str) -> String {
        match self.tail_types.filter(|_| self.plan.tail_bytes > 0) {
            Some((k, v)) => format!(" {option}-k {k} {option}-v {v}"),
            None => String::new(),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let plan = self.plan;
        let (fit, missing) = match plan.fit {
            PlanFit::Resident => ("resident", 0),
            PlanFit::Window => ("window", 0),
            PlanFit::NotOnDevice { missing_bytes } => ("not on device", missing_bytes),
            PlanFit::NotOnHost { missing_bytes } => ("not on host", missing_bytes),
            _ => ("unknown", 0),
        };
        let engines = plan.engines.iter().map(|engine| {
            json!({
                "engine": engine.engine.name(),
                "step_ms": engine.step_s * 1e3,
                "tokens_per_s": self.rate(engine.step_s),
                "host_share": engine.host_share,
            })
        });
        json!({
            "model": self.shape.name,
            "machine": self.machine,
            "rates": self.rates,
            "fit": fit,
            "missing_bytes": missing,
            "n_ctx": plan.n_ctx,
            "depth": self.depth,
            "streams": self.streams,
            "cache_types": [self.types.0, self.types.1],
            "tail_types": self.tail_types.map(|(k, v)| [k, v]),
            "cell_bytes": self.shape.cell_bytes(self.types.0, self.types.1),
            "weight_bytes": self.shape.weight_bytes,
            "window_cells": plan.window_cells,
            "window_bytes": plan.window_bytes,
            "tail_bytes": plan.tail_bytes,
            "step_tail_bytes": plan.step_tail_bytes,
            "compute_bytes": plan.compute_bytes,
            "device_bytes": plan.device_bytes,
            "ring": { "slots": plan.ring_slots, "slot_bytes": plan.slot_bytes, "copy_cells": plan.copy_cells },
            "resident_step_ms": plan.resident_step_s * 1e3,
            "prompt_tokens_per_s": 1.0 / plan.prompt_token_s.max(1e-12),
            "engines": engines.collect::<Vec<_>>(),
            "best": plan.best.name(),
            "run": self.run_line(),
            "server": self.server_line(),
            "notes": self.shape.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use rolling_kv::{PlanRequest, plan};

    #[test]
    fn the_command_line_that_is_printed_is_one() {
        let rates = Rates {
            to_device_pinned_bytes_per_s: 10e9,
            device_memory_bytes_per_s: 500e9,
            host_kernel_bytes_per_s: vec![(KvType::Q8_0, 40e9)],
            device_bytes: 20 << 30,
            host_bytes: 60 << 30,
            ..Rates::default()
        };
        let shape = ModelShape::uniform("a model", 48, 40, 8, 128, 9 << 30);
        let tail_types = Some((KvType::Q8_0, KvType::Q8_0));
        let request = PlanRequest::new(131_072)
            .tile_cells(64)
            .tail_types(KvType::Q8_0, KvType::Q8_0);
        let plan = plan(&rates, &shape, &request).unwrap();
        let report = Report {
            model: "model.gguf".into(),
            machine: "a machine".into(),
            shape: &shape,
            rates: &rates,
            plan: &plan,
            depth: 131_072,
            streams: 2,
            types: (KvType::F16, KvType::F16),
            tail_types,
            tile_cells: 64,
        };
        let line = report.run_line();
        for word in [
            "--window-cells ",
            "--tile-cells 64",
            "--tail-engine h",
            "--tail-type-k q8_0",
        ] {
            assert!(line.contains(word), "no {word:?} in: {line}");
        }
        let words = line.split(' ').chain(["-p", "Once"]);
        Cli::command().try_get_matches_from(words).unwrap();
        assert!(report.text().contains("changes what the model says"));
        assert!(
            report
                .server_line()
                .contains(" -c 262144 -np 2 --kv-window-cells ")
        );
    }
}
