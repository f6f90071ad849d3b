//! The freshness test: what a second build does, and what touching a file makes it do.
//!
//! It works in a copy of the repository, so that no file of the person's is touched; the copy shares the native build.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rolling_kv_stage::Variant;
use serde_json::Value;

use crate::cargo;
use crate::error::{Error, Result};
use crate::git;
use crate::native;
use crate::place::Place;
use crate::report::Counts;

/// The kernel file that is touched.
const KERNEL: &str = "kernels/src/rkv-abi.cpp";

/// What one build did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Did {
    /// Packages that cargo compiled or whose build script it ran.
    packages: Vec<String>,
    /// Objects that the native build compiled.
    objects: Vec<String>,
}

/// Runs the test and leaves the native build as our own files make it.
pub fn run(place: &Place) -> Result<Counts> {
    native::build(place, Variant::Patched, &[])?;
    let result = in_copy(place);
    native::build(place, Variant::Patched, &[])?;
    result
}

fn in_copy(place: &Place) -> Result<Counts> {
    let copy = place.work().join("fresh copy");
    if copy.exists() {
        fs::remove_dir_all(&copy).map_err(Error::file("remove", &copy))?;
    }
    git::copy_tree(place, &copy)?;
    let test = Copy {
        place,
        root: copy.clone(),
        log: native::log(place)?,
        passed: 0,
    };
    let passed = test.run()?;
    fs::remove_dir_all(&copy).map_err(Error::file("remove", &copy))?;
    Ok(Counts::new(passed, 0, 0))
}

struct Copy<'a> {
    place: &'a Place,
    root: PathBuf,
    log: PathBuf,
    passed: u64,
}

impl Copy<'_> {
    fn run(mut self) -> Result<u64> {
        let first = self.cargo("build")?;
        self.expect(
            "a copy with the same files compiles no object",
            first.objects.is_empty(),
            &first,
        )?;
        let second = self.cargo("build")?;
        self.expect("a second build is fresh", second == Did::default(), &second)?;
        self.cargo("check")?;
        let after_check = self.cargo("build")?;
        self.expect(
            "a build after a check is fresh",
            after_check == Did::default(),
            &after_check,
        )?;
        self.touch("README.md")?;
        let unrelated = self.cargo("build")?;
        self.expect(
            "touching an unrelated file changes nothing",
            unrelated == Did::default(),
            &unrelated,
        )?;

        self.touch(KERNEL)?;
        let kernel = self.cargo("build")?;
        let one = matches!(&kernel.objects[..], [only] if only.contains("rkv-abi.cpp"));
        self.expect(
            "touching a kernel compiles its object and no other",
            one,
            &kernel,
        )?;

        self.reword_a_patch()?;
        let patch = self.cargo("build")?;
        let ours =
            !patch.objects.is_empty() && patch.objects.iter().all(|object| object.contains("rkv"));
        self.expect(
            "rewording a patch compiles what names the build, and nothing of upstream's",
            ours,
            &patch,
        )?;
        let last = self.cargo("build")?;
        self.expect(
            "the build after that is fresh again",
            last == Did::default(),
            &last,
        )?;
        Ok(self.passed)
    }

    fn expect(&mut self, claim: &str, holds: bool, did: &Did) -> Result<()> {
        if holds {
            println!("ok  {claim}");
            self.passed += 1;
            return Ok(());
        }
        let next = format!(
            "`cargo build -v` in {} says why cargo ran; see also {}",
            self.root.display(),
            self.log.display()
        );
        Err(Error::wrong(
            format!(
                "not true: {claim}. Packages: {:?}; objects: {:?}",
                did.packages, did.objects
            ),
            next,
        ))
    }

    fn cargo(&self, verb: &str) -> Result<Did> {
        // The log of an earlier build must not be taken for one of this.
        fs::write(&self.log, "").map_err(Error::file("write", &self.log))?;
        let run = cargo::command(self.place)
            .args([verb, "--package", "rolling-kv", "--message-format=json"])
            .dir(&self.root);
        let ended = run.quietly()?.success()?;
        let log = fs::read_to_string(&self.log).map_err(Error::file("read", &self.log))?;
        Ok(Did {
            packages: stale_packages(&String::from_utf8_lossy(&ended.stdout)),
            objects: objects(&log),
        })
    }

    fn touch(&self, file: &str) -> Result<()> {
        git::set_modified(&self.root.join(file), SystemTime::now())
    }

    /// Changes the text of a patch's header, and so the hash of the patches.
    fn reword_a_patch(&self) -> Result<()> {
        let file = self.root.join("patches/build/abi-marker.patch");
        let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
        let reworded = text.replacen("Author: ", "Author: also ", 1);
        if reworded == text {
            return Err(Error::wrong(
                format!("{} names no author", file.display()),
                "`cargo xtask patches check` says what a header holds",
            ));
        }
        fs::write(&file, reworded).map_err(Error::file("write", &file))
    }
}

/// The packages of which cargo's messages report something that was not fresh.
fn stale_packages(messages: &str) -> Vec<String> {
    let read = |line: &str| -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        let stale = !message.get("fresh")?.as_bool()?;
        stale.then(|| {
            message["target"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
    };
    let mut names: Vec<String> = messages.lines().filter_map(read).collect();
    names.dedup();
    names
}

/// The objects that a ninja log says were compiled.
fn objects(log: &str) -> Vec<String> {
    let read = |line: &str| {
        Some(
            line.split_once("Building C")?
                .1
                .split_once("object ")?
                .1
                .to_owned(),
        )
    };
    log.lines()
        .filter_map(read)
        .map(|path| {
            Path::new(&path)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_packages_are_read_from_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a\"},\"fresh\":true}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"b\"},\"fresh\":false}\n\
            {\"reason\":\"build-script-executed\"}\nnot json\n";
        assert_eq!(stale_packages(messages), ["b"]);
    }

    #[test]
    fn compiled_objects_are_read_from_ninjas_log() {
        let log = "[1/3] Building CXX object src/CMakeFiles/llama.dir/__/rkv/src/rkv-abi.cpp.o\n\
            [2/3] Linking CXX shared library bin/libllama.so.0.5.0\n[3/3] Building C object ggml/src/ggml.c.o\n";
        assert_eq!(objects(log), ["rkv-abi.cpp.o", "ggml.c.o"]);
        assert!(objects("ninja: no work to do.\n").is_empty());
    }
}
