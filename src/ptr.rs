//! An owning pointer that keeps C's `const` and Rust's borrows in step.

use std::ptr::NonNull;

/// A pointer to a C object that its holder owns: `*const` from `&self`, `*mut` only from `&mut self`.
#[derive(Debug)]
pub(crate) struct Ptr<T>(NonNull<T>);

impl<T> Ptr<T> {
    /// `None` for NULL.
    pub(crate) fn new(raw: *mut T) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    pub(crate) fn as_ptr(&self) -> *const T {
        self.0.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.0.as_ptr()
    }

    /// For C functions that take `*mut` but whose effect cannot be seen through any borrow that Rust hands out. The
    /// caller says why at the place where it is used.
    pub(crate) fn as_ptr_unshared(&self) -> *mut T {
        self.0.as_ptr()
    }
}
