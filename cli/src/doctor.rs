//! `rolling-kv doctor`: says what this machine and this build can do, and whether they fit.

mod cards;
mod cuda;
mod libraries;
mod memory;
mod module;
mod probe;
#[cfg(target_arch = "aarch64")]
mod probe_aarch64;
#[cfg(target_arch = "x86_64")]
mod probe_amx;
#[cfg(target_arch = "x86_64")]
mod probe_x86;
mod report;
mod tools;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use rolling_kv::{Backend, BackendError, DeviceKind};

use crate::{exit, run, ui, version};
use probe::{Feature, Finding};
use report::{Cpu, Device, FeatureJson, Module, Report, Verdict, Versions};

/// The options of `rolling-kv doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// Write one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Execute one instruction of a feature and end; used by doctor on itself
    #[arg(long = "try", value_name = "FEATURE", hide = true)]
    attempt: Option<String>,
}

/// Runs the command and answers the exit code.
pub fn doctor(args: &DoctorArgs) -> u8 {
    if let Some(name) = &args.attempt {
        return probe::attempt(name);
    }
    let report = examine();
    if args.json {
        match serde_json::to_string(&report) {
            Ok(text) => ui::print(&text),
            Err(error) => ui::note(&format!(
                "error: the report cannot be written as JSON: {error}"
            )),
        }
    } else {
        ui::print(&report.to_string());
    }
    match report.verdict {
        Verdict::Ok => exit::OK,
        Verdict::Problem => exit::FAILURE,
    }
}

fn examine() -> Report {
    let control = probe::control();
    let features = probe::all();
    let backend = Backend::init();
    let libraries = libraries::mapped();
    let module = backend
        .as_ref()
        .ok()
        .and_then(|backend| look_at_module(*backend, &libraries, &features));
    let devices = backend
        .as_ref()
        .map(|backend| look_at_devices(*backend))
        .unwrap_or_default();
    let lib_dir = backend.as_ref().ok().map(|backend| backend.lib_dir());
    let cuda_modules = lib_dir
        .as_deref()
        .map(|folder| cuda::look(folder, &libraries))
        .unwrap_or_default();
    let cards = cards::look();
    let tools = tools::look(lib_dir.as_deref().and_then(tools_folder).as_deref());
    let memory = memory::look();
    let versions = look_at_versions(&backend);
    let findings = verdict::Findings {
        control: &control,
        features: &features,
        backend: backend.as_ref().err(),
        module: module.as_ref(),
        cuda_modules: &cuda_modules,
        versions: &versions,
        devices: &devices,
        libraries: &libraries,
        memory: &memory,
        tools: &tools,
    };
    let (problems, notes) = findings.judge();
    Report {
        verdict: if problems.is_empty() {
            Verdict::Ok
        } else {
            Verdict::Problem
        },
        problems,
        notes,
        versions,
        cpu: Cpu {
            model: cpu(),
            threads: run::fitting_threads(),
            control: control.word(),
            features: features
                .iter()
                .map(|it| FeatureJson {
                    name: it.name,
                    finding: it.finding.word(),
                })
                .collect(),
        },
        module,
        cuda_modules,
        cuda: cards,
        devices,
        libraries,
        memory,
        tools,
    }
}

fn look_at_versions(backend: &Result<Backend, BackendError>) -> Versions {
    let ask = |question: fn(Backend) -> String| {
        backend
            .as_ref()
            .map_or_else(|_| "not loaded".into(), |it| question(*it))
    };
    Versions {
        rolling_kv: version::OURS.into(),
        llama_cpp: ask(Backend::llama_version),
        llama_cpp_pinned: version::pinned("llama_cpp_version").into(),
        llama_cpp_pinned_commit: version::pinned("llama_cpp_commit").into(),
        ggml_pinned: version::pinned("ggml_version").into(),
        stamp: ask(Backend::build_stamp),
        patches: version::patches().map(str::to_owned).collect(),
    }
}

fn look_at_module(backend: Backend, libraries: &[PathBuf], features: &[Feature]) -> Option<Module> {
    let path = libraries::cpu_module(libraries)?.to_owned();
    let said = backend
        .features()
        .into_iter()
        .filter(|feature| feature.backend == "CPU" && feature.value != "0");
    let compiled_for: Vec<_> = said.map(|feature| feature.name).collect();
    let built = path
        .parent()
        .map(libraries::cpu_modules_in)
        .unwrap_or_default();
    let safety = module::judge(&compiled_for, features);
    Some(Module {
        path,
        compiled_for,
        built,
        safety,
    })
}

fn look_at_devices(backend: Backend) -> Vec<Device> {
    let describe = |device: rolling_kv::Device| {
        let (free_bytes, total_bytes) = device.memory_bytes();
        let kind = match device.kind() {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
            DeviceKind::IntegratedGpu => "integrated gpu",
            DeviceKind::Accelerator => "accelerator",
            _ => "other",
        };
        Device {
            name: device.name(),
            kind: kind.into(),
            description: device.description(),
            backend: device.backend(),
            free_bytes,
            total_bytes,
        }
    };
    backend.devices().into_iter().map(describe).collect()
}

/// Where `cargo xtask setup` puts tools: `tools` in cargo's target folder, which holds the folder of all our builds.
fn tools_folder(lib_dir: &Path) -> Option<PathBuf> {
    let builds = lib_dir
        .ancestors()
        .find(|folder| folder.ends_with("rolling-kv"))?;
    Some(builds.parent()?.join("tools"))
}

/// The processor's name.
pub fn cpu() -> String {
    cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// All of the machine's memory, where the system says it.
pub fn total_memory_bytes() -> Option<u64> {
    memory::look().total_bytes
}

/// The processor's name out of `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |key: &str| {
        cpuinfo
            .lines()
            .find(|line| line.starts_with(key))?
            .split_once(':')
            .map(|(_, name)| name.trim())
    };
    field("model name")
        .or_else(|| field("CPU part"))
        .unwrap_or(std::env::consts::ARCH)
        .to_owned()
}

/// Whether a feature that was reported does not work.
fn is_broken(feature: &Feature) -> bool {
    !matches!(feature.finding, Finding::Works | Finding::NotReported)
}
