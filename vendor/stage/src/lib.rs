//! From a checkout of this project and upstream's source package to libraries that can be linked: find, verify, patch,
//! overlay, build, bind.
//!
//! A build script is these steps and nothing else:
//!
//! ```no_run
//! use rolling_kv_stage::{Failure, Plan};
//!
//! fn main() -> Result<(), Failure> {
//!     let plan = Plan::from_env()?;
//!     let tree = plan.stage()?;
//!     let libs = tree.compile(&[])?;
//!     libs.bind("bindings.rs".as_ref())?;
//!     libs.print_cargo_metadata();
//!     Ok(())
//! }
//! ```
//!
//! Everything lies in `<target>/rolling-kv/<name>/`: `src/` (the staged tree, complete or absent), `build/` (cmake's),
//! `link/` (see [`stub`]), `stamp.json` and `build.log`. One such folder serves debug, release, check and dependent packages. With the
//! feature `cuda` there are also `build-cuda-<cards>/`, in which the module is built, and `bin-cuda/` and `link-cuda/`, which hold it beside the
//! others.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `ROLLING_KV_LLAMA_DIR` | a llama.cpp tree to use instead of the pinned one; the patches must fit it all the same |
//! | `ROLLING_KV_CACHE_DIR` | where the pinned tree is kept, by default `~/.cache/rolling-kv` |
//! | `ROLLING_KV_LINK` | `origin` links programs with the libraries by their plain names, for those who ship them with an rpath of their own |
//! | `ROLLING_KV_CUDA_ARCH` | the cards that the CUDA module is built for, by default `80,86,89,90` |
//! | `CMAKE`, `NINJA`, `LIBCLANG_PATH`, `CC`, `CXX`, `CUDACXX` | tools to use instead of those that are found |
//! | `CARGO_NET_OFFLINE` | `true` forbids fetching |

pub mod bindings;
pub mod check;
pub mod checkout;
mod command;
mod compose;
mod cpu;
pub mod cuda;
pub mod env;
mod error;
pub mod event;
pub mod extract;
pub mod fetch;
mod fsx;
mod git;
pub mod glob;
pub mod hash;
pub mod header;
pub mod hooks;
pub mod lock;
pub mod native;
mod options;
pub mod overlay;
mod parse;
pub mod patch;
mod plan;
mod refresh;
pub mod series;
pub mod source;
mod staged;
pub mod stamp;
pub mod stub;
pub mod target;
pub mod tools;
pub mod tree;
mod upstream;
pub mod walk;

pub use error::{Error, Failure, Result};
pub use event::{Event, Reporter};
pub use plan::{Plan, Variant};
pub use staged::{Built, Staged};
pub use upstream::{Repo, Upstream};
