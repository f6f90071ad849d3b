//! A missing tool is named, with what to install.

mod common;

use common::assert_says;
use rolling_kv_stage::cuda::Toolkit;
use rolling_kv_stage::env::Env;
use rolling_kv_stage::tools::{Search, Toolchain};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder with these programs (empty files that may be run), and a search that sees nothing else.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(files: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn search(&self, more: &[(&str, &str)]) -> Search {
        let bin = self.path("bin").into_os_string().into_string().unwrap();
        let env = Env::from_pairs(
            [("PATH", bin.as_str())]
                .into_iter()
                .chain(more.iter().copied()),
        );
        Search {
            env,
            tool_dirs: vec![self.path("target/tools")],
            library_dirs: vec![self.path("lib")],
        }
    }

    fn refusal(&self, more: &[(&str, &str)]) -> String {
        Toolchain::find(&self.search(more)).unwrap_err().to_string()
    }
}

const ALL: [&str; 5] = [
    "bin/cc",
    "bin/c++",
    "bin/cmake",
    "bin/ninja",
    "lib/libclang.so",
];

fn without(missing: &str) -> Vec<&'static str> {
    ALL.into_iter().filter(|file| *file != missing).collect()
}

#[test]
fn tools_of_the_system_are_found() {
    let machine = Machine::new(&ALL);
    let tools = Toolchain::find(&machine.search(&[])).unwrap();
    assert_eq!(tools.cmake, machine.path("bin/cmake"));
    assert_eq!(tools.ninja, Some(machine.path("bin/ninja")));
    assert_eq!(tools.libclang, machine.path("lib/libclang.so"));
    assert_eq!(
        (tools.cc.program, tools.cxx.program),
        (machine.path("bin/cc"), machine.path("bin/c++"))
    );
}

#[test]
fn tools_that_setup_installed_go_first() {
    let wheels = [
        "target/tools/cmake/data/bin/cmake",
        "target/tools/ninja/data/bin/ninja",
        "target/tools/clang/native/libclang.so",
    ];
    let machine = Machine::new(&[&ALL[..], &wheels[..]].concat());
    let tools = Toolchain::find(&machine.search(&[])).unwrap();
    let found = [tools.cmake, tools.ninja.unwrap(), tools.libclang];
    assert_eq!(found, wheels.map(|file| machine.path(file)));
}

#[test]
fn missing_cmake_is_named() {
    let message = Machine::new(&without("bin/cmake")).refusal(&[]);
    assert_says(
        &message,
        &[
            "cmake was not found",
            "target/tools",
            "`cargo xtask setup`",
            "package cmake",
        ],
    );
}

#[test]
fn missing_libclang_is_named() {
    let message = Machine::new(&without("lib/libclang.so")).refusal(&[]);
    assert_says(
        &message,
        &[
            "libclang was not found",
            "LIBCLANG_PATH is not set",
            "`cargo xtask setup`",
            "libclang-dev",
        ],
    );
}

#[test]
fn missing_compilers_are_named() {
    let message = Machine::new(&without("bin/c++")).refusal(&[]);
    assert_says(
        &message,
        &[
            "a C++ compiler was not found",
            "c++, g++, clang++",
            "install gcc and g++",
        ],
    );
    assert_says(
        &Machine::new(&without("bin/cc")).refusal(&[]),
        &["a C compiler was not found", "build-essential"],
    );
    assert_says(&Machine::new(&[]).refusal(&[]), &["was not found"]);
}

#[test]
fn missing_ninja_is_no_error() {
    let machine = Machine::new(&without("bin/ninja"));
    assert_eq!(Toolchain::find(&machine.search(&[])).unwrap().ninja, None);
}

#[test]
fn variables_name_tools() {
    let machine = Machine::new(
        &[
            &ALL[..],
            &[
                "my own/cmake",
                "bin/ccache",
                "bin/clang++-18",
                "opt/libclang-18.so.1",
            ],
        ]
        .concat(),
    );
    let cmake = machine
        .path("my own/cmake")
        .into_os_string()
        .into_string()
        .unwrap();
    let opt = machine.path("opt").into_os_string().into_string().unwrap();
    let named = [
        ("CMAKE", cmake.as_str()),
        ("CC", "ccache gcc -m64"),
        ("CXX", "clang++-18"),
        ("LIBCLANG_PATH", opt.as_str()),
    ];
    let tools = Toolchain::find(&machine.search(&named)).unwrap();
    assert_eq!(tools.cmake, Path::new(&cmake));
    assert_eq!(
        tools.cc.to_string(),
        format!("{} gcc -m64", machine.path("bin/ccache").display())
    );
    assert_eq!(tools.cxx.program, machine.path("bin/clang++-18"));
    assert_eq!(tools.libclang, machine.path("opt/libclang-18.so.1"));
}

#[test]
fn variable_that_names_nothing_is_quoted() {
    let machine = Machine::new(&ALL);
    assert_says(
        &machine.refusal(&[("CXX", "no-such-c++")]),
        &["CXX names no-such-c++"],
    );
    assert_says(
        &machine.refusal(&[("CMAKE", "/nowhere/cmake")]),
        &["CMAKE names /nowhere/cmake"],
    );
    assert_says(
        &machine.refusal(&[("LIBCLANG_PATH", "/nowhere")]),
        &["LIBCLANG_PATH names /nowhere"],
    );
}

#[test]
fn file_that_may_not_be_run_is_no_tool() {
    let machine = Machine::new(&ALL);
    std::fs::set_permissions(
        machine.path("bin/cmake"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    assert_says(&machine.refusal(&[]), &["cmake was not found"]);
}

/// An nvcc in a toolkit, and libraries as wheels hold them.
const TOOLKIT: [&str; 6] = [
    "target/tools/cuda/nvidia/cu13/bin/nvcc",
    "target/tools/cuda/nvidia/cu13/include/cuda_runtime.h",
    "target/tools/cuda/nvidia/cu13/include/cublas_v2.h",
    "target/tools/cuda/nvidia/cu13/lib/libcudart.so.13",
    "target/tools/cuda/nvidia/cu13/lib/libcublas.so.13",
    "target/tools/cuda/nvidia/cu13/lib/libcublasLt.so.13",
];

#[test]
fn missing_nvcc_is_named_with_the_command_that_installs_it() {
    let machine = Machine::new(&ALL);
    let named = [("CUDACXX", "/nowhere/nvcc")];
    let error = Toolkit::find(&machine.search(&named)).unwrap_err();
    assert_says(
        &error.to_string(),
        &[
            "nvcc was not found",
            "CUDACXX names /nowhere/nvcc",
            "cargo xtask cuda setup",
        ],
    );
}

#[test]
fn the_toolkit_of_setup_goes_before_the_one_on_the_path() {
    let mut files = TOOLKIT.to_vec();
    files.push("bin/nvcc");
    let machine = Machine::new(&files);
    let own = Toolkit::find(&machine.search(&[])).unwrap();
    assert_eq!(own.nvcc, machine.path(TOOLKIT[0]).canonicalize().unwrap());
    assert!(own.has_cublas());
    let on_path = machine.path("bin/nvcc");
    let named = [("CUDACXX", on_path.to_str().unwrap())];
    let other = Toolkit::find(&machine.search(&named)).unwrap();
    assert_eq!(other.nvcc, on_path.canonicalize().unwrap());
    assert!(!other.has_cublas());
}

#[test]
fn libraries_of_wheels_get_the_names_that_a_linker_asks_for() {
    let machine = Machine::new(&TOOLKIT);
    let toolkit = Toolkit::find(&machine.search(&[])).unwrap();
    let names = |toolkit: &Toolkit| {
        let names = toolkit.runtime().into_iter();
        names
            .map(|file| file.file_name().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let runtime = ["libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"];
    assert_eq!(names(&toolkit), runtime);
    toolkit.link_names().unwrap();
    toolkit.link_names().unwrap();
    let linked = toolkit.library_dir().unwrap().join("libcublas.so");
    assert_eq!(
        std::fs::read_link(linked).unwrap(),
        Path::new("libcublas.so.13")
    );
    assert_eq!(names(&toolkit), runtime, "a link is no further library");
    assert!(toolkit.library_dir().unwrap().ends_with("lib64"));
}

#[test]
fn a_toolkit_without_cublas_says_so() {
    let machine = Machine::new(&TOOLKIT[..4]);
    let toolkit = Toolkit::find(&machine.search(&[])).unwrap();
    assert!(!toolkit.has_cublas());
    assert_eq!(toolkit.runtime().len(), 1);
}
