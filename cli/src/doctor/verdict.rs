//! What the findings mean: problems, which keep models from running, and notes, which do not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rolling_kv::BackendError;

use super::cuda::{self, CudaModule};
use super::is_broken;
use super::memory::Memory;
use super::probe::{Feature, Finding};
use super::report::{Device, Module, Versions};
use super::tools::Tool;

/// Less than this is too little for the smallest model that this program fetches.
const AVAILABLE_BYTES_MIN: u64 = 512 << 20;

/// Everything that decides.
pub struct Findings<'a> {
    pub control: &'a Finding,
    pub features: &'a [Feature],
    pub backend: Option<&'a BackendError>,
    pub module: Option<&'a Module>,
    pub cuda_modules: &'a [CudaModule],
    pub versions: &'a Versions,
    pub devices: &'a [Device],
    pub libraries: &'a [PathBuf],
    pub memory: &'a Memory,
    pub tools: &'a [Tool],
}

impl Findings<'_> {
    /// Problems, then notes.
    pub fn judge(&self) -> (Vec<String>, Vec<String>) {
        let on_cards = self
            .devices
            .iter()
            .filter(|device| device.backend == cuda::BACKEND);
        let (cuda_problems, cuda_notes) =
            cuda::judge(self.cuda_modules, &self.versions.stamp, on_cards.count());
        let (mut problems, mut notes) = (self.problems(), self.notes());
        problems.extend(cuda_problems);
        notes.extend(cuda_notes);
        (problems, notes)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if *self.control != Finding::Traps {
            problems.push(format!(
                "an instruction that is illegal everywhere was not seen to trap ({}), so what is said about CPU features \
                 means nothing: run this where a process may start itself as a child",
                self.control.word()
            ));
        }
        match (self.backend, self.module) {
            (Some(error), _) => problems.push(error.to_string()),
            (None, None) => problems.push(
                "no CPU module is mapped, although one was loaded: run this where /proc/self/maps can be read".into(),
            ),
            (None, Some(module)) if !module.safety.safe => problems.push(format!(
                "the CPU module {} will crash here, because {}: remove that file, so that another one is chosen, and \
                 build with the project's own options",
                module.path.display(),
                module.safety.reason
            )),
            (None, Some(_)) => {}
        }
        if self.backend.is_none() && !self.devices.iter().any(|device| device.kind == "cpu") {
            problems.push("there is no CPU device: rebuild, so that a CPU module is made".into());
        }
        if self
            .memory
            .available_bytes
            .is_some_and(|bytes| bytes < AVAILABLE_BYTES_MIN)
        {
            problems.push("less than 512 MiB of memory are available: end other programs".into());
        }
        problems
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for feature in self.features.iter().filter(|feature| is_broken(feature)) {
            notes.push(format!(
                "the processor reports {}, but trying it gave: {}; a program built for this very machine \
                 (-march=native) may crash",
                feature.name,
                feature.finding.word()
            ));
        }
        let versions = self.versions;
        if self.backend.is_none() && !versions.stamp.contains(&versions.llama_cpp_pinned_commit) {
            notes.push(format!(
                "the loaded library was not built from the pinned llama.cpp, but from: {}",
                versions.stamp
            ));
        }
        let folders: BTreeSet<_> = self
            .libraries
            .iter()
            .filter_map(|library| library.parent())
            .collect();
        if folders.len() > 1 {
            let folders: Vec<_> = folders.into_iter().map(Path::to_string_lossy).collect();
            notes.push(format!(
                "the libraries come from several folders, which may not fit: {}",
                folders.join(", ")
            ));
        }
        if let Some(untried) = self
            .module
            .map(|module| &module.safety.untried)
            .filter(|untried| !untried.is_empty())
        {
            notes.push(format!(
                "the CPU module also uses {}, which this program cannot try",
                untried.join(", ")
            ));
        }
        if self.memory.transparent_huge_pages.as_deref() == Some("never") {
            notes.push(
                "transparent huge pages are off; a long cache is read more slowly without them"
                    .into(),
            );
        }
        if self
            .tools
            .iter()
            .any(|tool| tool.needed_for == "fetch" && tool.path.is_none())
        {
            notes.push("`rolling-kv fetch` needs python3 with pip".into());
        }
        notes
    }
}
