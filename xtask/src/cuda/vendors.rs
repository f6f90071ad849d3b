//! HIP and MUSA compile the CUDA backend's files, with names of CUDA's runtime mapped to theirs: every name that our files use has to be.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Runtimes beside CUDA's: upstream's header, and what ours asks before it maps anything for it.
const VENDORS: [(&str, &str); 2] = [("hip.h", "GGML_USE_HIP"), ("musa.h", "GGML_USE_MUSA")];

/// Our own map, of what upstream does not use.
const OURS: &str = "rkv-cuda-vendors.h";

/// Names that no other runtime knows by our files in `folder`: "hip.h: cudaEventQuery".
pub fn unmapped(folder: &Path, upstream: &Path) -> Result<Vec<String>> {
    let mut used = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let path = entry.map_err(Error::file("list", folder))?.path();
        if path.file_name().is_some_and(|name| name != OURS) {
            used.extend(names(&read(&path)?).map(str::to_owned));
        }
    }
    let ours = read(&folder.join(OURS))?;
    let mut missing = Vec::new();
    for (file, vendor) in VENDORS {
        let theirs = read(&upstream.join("vendors").join(file))?;
        let known: BTreeSet<&str> = mapped(&theirs).chain(mapped(part(&ours, vendor))).collect();
        let unknown = used.iter().filter(|name| !known.contains(name.as_str()));
        missing.extend(unknown.map(|name| format!("{file}: {name}")));
    }
    Ok(missing)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(Error::file("read", file))
}

/// Names of CUDA's runtime in a source: "cuda", a capital, and what follows.
fn names(source: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    source
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(move |line| line.split(move |c| !is_part(c)))
        .filter(|word| {
            let rest = word.strip_prefix("cuda").unwrap_or_default();
            rest.starts_with(|c: char| c.is_ascii_uppercase())
        })
}

/// What a header defines.
fn mapped(header: &str) -> impl Iterator<Item = &str> {
    let define = |line: &'_ str| line.trim().strip_prefix("#define ").map(str::len);
    header.lines().filter_map(move |line| {
        let rest = &line.trim()[line.trim().len() - define(line)?..];
        rest.split(|c: char| c.is_whitespace() || c == '(').next()
    })
}

/// The lines of our header that hold for one vendor.
fn part<'a>(header: &'a str, vendor: &str) -> &'a str {
    let begin = header
        .find(&format!("defined({vendor})"))
        .unwrap_or(header.len());
    let rest = &header[begin..];
    let end = ["\n#elif", "\n#endif"]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min();
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "#if defined(GGML_USE_HIP)\n#define cudaQuery hipQuery\n#elif defined(GGML_USE_MUSA)\n\
                          #define cudaQuery musaQuery\n#define cudaOther musaOther\n#endif\n";

    fn found(source: &str, header: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let (ours, upstream) = (dir.path().join("ours"), dir.path().join("upstream"));
        fs::create_dir_all(&ours).unwrap();
        fs::create_dir_all(upstream.join("vendors")).unwrap();
        fs::write(ours.join("rkv-a.cu"), source).unwrap();
        fs::write(ours.join(OURS), header).unwrap();
        for file in ["hip.h", "musa.h"] {
            let text = "#define cudaFree theirFree\n#define cudaMalloc(p, n) theirMalloc(p, n)\n";
            fs::write(upstream.join("vendors").join(file), text).unwrap();
        }
        unmapped(&ours, &upstream).unwrap()
    }

    #[test]
    fn names_that_either_header_maps_are_known_for_their_vendor_alone() {
        let source = "cudaFree(x); cudaMalloc(&x, 1); cudaQuery(e); my_cudaThing(); cuda_free(); // cudaComment";
        assert_eq!(found(source, HEADER), Vec::<String>::new());
        assert_eq!(found("cudaOther();", HEADER), ["hip.h: cudaOther"]);
        assert_eq!(
            found("cudaNew(cudaNewFlag);", HEADER),
            [
                "hip.h: cudaNew",
                "hip.h: cudaNewFlag",
                "musa.h: cudaNew",
                "musa.h: cudaNewFlag"
            ]
        );
    }
}
