//! The dependent-crate test: a crate that depends on ours, by path and by git, runs without any search path for libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rolling_kv_stage::walk;

use crate::cargo;
use crate::error::{Error, Result};
use crate::git;
use crate::place::Place;
use crate::process::Run;
use crate::report::Counts;

const MAIN: &str = r#"fn main() -> Result<(), Box<dyn std::error::Error>> {
    for device in rolling_kv::Backend::init()?.devices() {
        println!("device: {device}");
    }
    Ok(())
}
"#;

/// Builds and runs both dependents; prints the devices that they see.
pub fn run(place: &Place) -> Result<Counts> {
    let path = format!("path = {:?}", place.root);
    let mut counts = Counts::default();
    one(place, "by path", &path)?;
    counts += Counts::ONE;
    match git::why_not_committed(place) {
        Some(why) => {
            println!("SKIP: a dependent by git: {why}");
            counts += Counts::new(0, 0, 1);
        }
        None => {
            one(
                place,
                "by git",
                &format!("git = {:?}", file_url(&place.root)),
            )?;
            counts += Counts::ONE;
        }
    }
    Ok(counts)
}

/// Makes, builds and runs one dependent in a folder whose name has a space.
fn one(place: &Place, name: &str, source: &str) -> Result<()> {
    let dir = place.work().join("dependents").join(name);
    fs::create_dir_all(dir.join("src")).map_err(Error::file("make", &dir))?;
    let package = format!("dependent-{}", name.replace(' ', "-"));
    let write = |file: &str, text: &str| {
        fs::write(dir.join(file), text).map_err(Error::file("write", &dir.join(file)))
    };
    write(
        "Cargo.toml",
        &manifest(&package, source, &profile(&place.root)?),
    )?;
    write("src/main.rs", MAIN)?;
    // The same versions as ours, so that nothing new is fetched and what is compiled can be used again.
    fs::copy(place.root.join("Cargo.lock"), dir.join("Cargo.lock"))
        .map_err(Error::file("copy", &place.root.join("Cargo.lock")))?;
    keep_times(place, &dir)?;
    cargo::command(place)
        .args(["build", "--quiet"])
        .dir(&dir)
        .shown()?
        .success()?;
    let ended = Run::new(place.target.join("debug").join(&package))
        .env_clear()
        .dir("/")
        .limit(Duration::from_secs(120))
        .next("run `ldd` on that program: every library of ours must be named by its whole path")
        .quietly()?
        .success()?;
    let devices: Vec<&str> = ended
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("device: "))
        .collect();
    println!("{name}: {}", devices.join(", "));
    if devices.iter().any(|device| device.starts_with("CPU")) {
        return Ok(());
    }
    Err(Error::wrong(
        format!("the dependent {name} sees no CPU device:\n{}", ended.text),
        "check where Backend::init looks for modules",
    ))
}

/// Gives the kernels of the checkout that the dependent in `dir` builds from the times of ours where they are the same: the native
/// build is shared, and what is newer is compiled again, here and then once more in the steps after this one.
fn keep_times(place: &Place, dir: &Path) -> Result<()> {
    let ended = cargo::command(place)
        .args(["metadata", "--format-version", "1", "--quiet"])
        .dir(dir)
        .quietly()?;
    let Some(checkout) = checkout(&String::from_utf8_lossy(&ended.stdout)) else {
        // It asks for the crates of every platform, which are more than a build needs.
        println!("cargo metadata does not say where our crate is: what is native is built again");
        return Ok(());
    };
    if checkout == place.root {
        return Ok(());
    }
    let kernels = place.root.join("kernels");
    for entry in walk::files(&kernels, &[])? {
        let theirs = checkout.join("kernels").join(&entry.relative);
        let read = |file: &Path| fs::read(file).map_err(Error::file("read", file));
        if theirs.is_file() && read(&theirs)? == read(&entry.path)? {
            let modified = entry.metadata.modified();
            let modified = modified.map_err(Error::file("look at", &entry.path))?;
            git::set_modified(&theirs, modified)?;
        }
    }
    Ok(())
}

/// The folder of our crate, from what `cargo metadata` prints.
fn checkout(metadata: &str) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let packages = metadata["packages"].as_array()?;
    let ours = packages.iter().find(|p| p["name"] == "rolling-kv")?;
    let manifest = Path::new(ours["manifest_path"].as_str()?);
    manifest.parent().map(Path::to_path_buf)
}

fn manifest(package: &str, source: &str, profile: &str) -> String {
    format!(
        "[package]\nname = \"{package}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nrolling-kv = {{ {source} }}\n\n[workspace]\n\n{profile}"
    )
}

/// The profile sections of our workspace: with the same ones, cargo can use again what it has compiled.
fn profile(root: &Path) -> Result<String> {
    let file = root.join("Cargo.toml");
    let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
    Ok(profile_sections(&text))
}

fn profile_sections(manifest: &str) -> String {
    let mut taking = false;
    let lines = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            taking = line.starts_with("[profile.");
        }
        taking
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The folder as a URL that cargo takes as a git source.
fn file_url(folder: &Path) -> String {
    let mut url = String::from("file://");
    for byte in folder.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                url.push(byte as char)
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_characters_are_escaped_in_urls() {
        assert_eq!(file_url(Path::new("/a b/é")), "file:///a%20b/%C3%A9");
    }

    #[test]
    fn our_folder_is_found_among_others() {
        let text = r#"{"packages":[{"name":"serde","manifest_path":"/x/Cargo.toml"},{"name":"rolling-kv","manifest_path":"/a b/Cargo.toml"}]}"#;
        assert_eq!(checkout(text), Some(PathBuf::from("/a b")));
        assert_eq!(checkout(r#"{"packages":[]}"#), None);
        assert_eq!(checkout("nothing"), None);
    }

    #[test]
    fn only_profiles_are_taken_from_our_manifest() {
        let text = "[workspace]\nmembers = []\n[profile.dev]\nopt-level = 1\n\n[package]\nname = \"x\"\n[profile.dev.package.sha2]\nopt-level = 3\n";
        assert_eq!(
            profile_sections(text),
            "[profile.dev]\nopt-level = 1\n\n[profile.dev.package.sha2]\nopt-level = 3\n"
        );
    }

    #[test]
    fn the_manifest_stands_outside_our_workspace() {
        let text = manifest("dependent-by-path", "path = \"/r\"", "");
        assert!(text.contains("[workspace]") && text.contains("rolling-kv = { path = \"/r\" }"));
    }
}
