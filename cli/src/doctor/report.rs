//! Everything that `doctor` found, as data and as text.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use serde::Serialize;

use super::cards::CudaCards;
use super::cuda::CudaModule;
use super::memory::Memory;
use super::module::Safety;
use super::tools::Tool;

/// Whether this machine and this build fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    Problem,
}

/// The report.
#[derive(Serialize)]
pub struct Report {
    pub verdict: Verdict,
    /// What keeps models from running here; each with what to do.
    pub problems: Vec<String>,
    /// What is worth knowing and keeps nothing from running.
    pub notes: Vec<String>,
    pub versions: Versions,
    pub cpu: Cpu,
    pub module: Option<Module>,
    /// Those that lie beside the libraries, used or not.
    pub cuda_modules: Vec<CudaModule>,
    /// What NVIDIA's driver says.
    pub cuda: CudaCards,
    pub devices: Vec<Device>,
    pub libraries: Vec<PathBuf>,
    pub memory: Memory,
    pub tools: Vec<Tool>,
}

/// What was built, from what.
#[derive(Serialize)]
pub struct Versions {
    pub rolling_kv: String,
    /// What the loaded library says of itself.
    pub llama_cpp: String,
    pub llama_cpp_pinned: String,
    pub llama_cpp_pinned_commit: String,
    pub ggml_pinned: String,
    /// What the loaded library was built from.
    pub stamp: String,
    pub patches: Vec<String>,
}

/// The processor.
#[derive(Serialize)]
pub struct Cpu {
    pub model: String,
    /// Threads that a run uses unless told otherwise.
    pub threads: u32,
    /// What came of an instruction that is illegal everywhere: it must trap, or the findings mean nothing.
    pub control: String,
    pub features: Vec<FeatureJson>,
}

/// A feature and what came of trying it.
#[derive(Serialize)]
pub struct FeatureJson {
    pub name: &'static str,
    pub finding: String,
}

/// The CPU module that ggml chose among those that were built.
#[derive(Serialize)]
pub struct Module {
    pub path: PathBuf,
    pub compiled_for: Vec<String>,
    pub built: Vec<String>,
    #[serde(flatten)]
    pub safety: Safety,
}

/// Something that computes.
#[derive(Serialize)]
pub struct Device {
    pub name: String,
    pub kind: String,
    pub description: String,
    pub backend: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Width of the column of names.
const NAME: usize = 22;

/// One line of a section.
pub fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {name:NAME$} {value}")
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.versions(f)?;
        self.cpu(f)?;
        self.devices(f)?;
        self.cuda_modules(f)?;
        write!(f, "{}", self.cuda)?;
        self.libraries(f)?;
        self.memory(f)?;
        self.tools(f)?;
        self.ending(f)
    }
}

impl Report {
    fn versions(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let versions = &self.versions;
        writeln!(f, "Versions")?;
        line(f, "rolling-kv", &versions.rolling_kv)?;
        let pinned = format!(
            "{} commit {}",
            versions.llama_cpp_pinned, versions.llama_cpp_pinned_commit
        );
        line(
            f,
            "llama.cpp",
            format_args!(
                "{} (pinned: {pinned}, ggml {})",
                versions.llama_cpp, versions.ggml_pinned
            ),
        )?;
        line(f, "built from", &versions.stamp)?;
        line(f, "patches", versions.patches.len())?;
        versions
            .patches
            .iter()
            .try_for_each(|patch| writeln!(f, "    {patch}"))
    }

    fn cpu(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nCPU: {} ({} threads used by default)",
            self.cpu.model, self.cpu.threads
        )?;
        for feature in &self.cpu.features {
            line(f, feature.name, &feature.finding)?;
        }
        line(f, "illegal instruction", &self.cpu.control)?;
        match &self.module {
            None => line(f, "module", "none was loaded"),
            Some(module) => {
                line(f, "module", module.path.display())?;
                line(f, "chosen among", module.built.join(" "))?;
                line(f, "compiled for", module.compiled_for.join(" "))?;
                line(
                    f,
                    if module.safety.safe {
                        "safe because"
                    } else {
                        "NOT safe because"
                    },
                    &module.safety.reason,
                )
            }
        }
    }

    fn devices(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nDevices")?;
        for device in &self.devices {
            let memory = format!(
                "{} free of {}",
                size(device.free_bytes),
                size(device.total_bytes)
            );
            line(
                f,
                &device.name,
                format_args!("{} [{}], {memory}", device.description, device.kind),
            )?;
        }
        Ok(())
    }

    fn cuda_modules(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for module in &self.cuda_modules {
            writeln!(f, "\nCUDA module")?;
            line(f, "file", module.path.display())?;
            line(
                f,
                "built from",
                module.stamp.as_deref().unwrap_or("not said"),
            )?;
            line(f, "loaded", if module.loaded { "yes" } else { "no" })?;
        }
        Ok(())
    }

    fn libraries(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nLibraries loaded")?;
        self.libraries
            .iter()
            .try_for_each(|library| writeln!(f, "  {}", library.display()))
    }

    fn memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let memory = &self.memory;
        let bytes = |value: Option<u64>| value.map_or_else(|| "unknown".into(), size);
        writeln!(f, "\nMemory")?;
        line(
            f,
            "available",
            format_args!(
                "{} of {}",
                bytes(memory.available_bytes),
                bytes(memory.total_bytes)
            ),
        )?;
        if let Some(limit) = memory.group_limit_bytes {
            line(f, "control group limit", size(limit))?;
        }
        line(
            f,
            "lockable (pinned)",
            memory
                .lock_limit_bytes
                .map_or_else(|| "no limit".into(), size),
        )?;
        let made = memory
            .transparent_huge_pages
            .as_deref()
            .unwrap_or("unknown");
        line(
            f,
            "huge pages",
            format_args!("transparent: {made}, of {}", bytes(memory.huge_page_bytes)),
        )?;
        let count =
            |value: Option<u64>| value.map_or_else(|| "unknown".into(), |pages| pages.to_string());
        let (free, reserved) = (
            count(memory.huge_pages_free),
            count(memory.huge_pages_reserved),
        );
        line(
            f,
            "reserved huge pages",
            format_args!("{free} free of {reserved}"),
        )
    }

    fn tools(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nTools (running a model needs none of them)")?;
        for tool in &self.tools {
            match (&tool.path, &tool.version) {
                (None, _) => line(
                    f,
                    tool.name,
                    format_args!("not found; needed for: {}", tool.needed_for),
                )?,
                (Some(path), None) => line(f, tool.name, path.display())?,
                (Some(path), Some(version)) => {
                    line(f, tool.name, format_args!("{} ({version})", path.display()))?
                }
            }
        }
        Ok(())
    }

    fn ending(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note: {note}"))?;
        self.problems
            .iter()
            .try_for_each(|problem| writeln!(f, "problem: {problem}"))?;
        match (self.verdict, self.problems.len()) {
            (Verdict::Ok, _) => write!(f, "verdict: ok, models can run here"),
            (Verdict::Problem, 1) => write!(f, "verdict: 1 problem"),
            (Verdict::Problem, n) => write!(f, "verdict: {n} problems"),
        }
    }
}

/// A number of bytes for people.
pub fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
