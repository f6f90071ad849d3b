//! The declarations that bindgen made from llama.cpp's headers and ours.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
// Generated: one name per declaration of the headers, whether or not it is used here.
#![allow(
    dead_code,
    missing_docs,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
