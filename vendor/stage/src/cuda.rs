//! The CUDA module: what it is built with, for which cards, and building it.

mod archs;
mod folder;
mod module;
mod toolkit;

pub use archs::Archs;
pub use module::Module;
pub use toolkit::Toolkit;

pub(crate) use folder::lay_out;
