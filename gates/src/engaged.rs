//! Whether what a gate is to prove something about ran at all.

use rolling_kv::TailEngine;

use crate::error::GateError;

/// A tail was read, and by the host where the host was asked for.
pub fn check(engine: TailEngine, tiles_tail: u64, tiles_host: u64) -> Result<(), GateError> {
    if tiles_tail == 0 {
        return Err(GateError::NotEngaged);
    }
    let by_host = matches!(engine, TailEngine::Host | TailEngine::Hybrid);
    if by_host && tiles_host == 0 {
        return Err(GateError::EngineIdle {
            engine: engine.name(),
        });
    }
    Ok(())
}

/// Who attended to the tail, where that was asked for or is not what it would be without a device.
pub fn note(engine: &str, tiles_tail: u64, tiles_host: u64) -> Option<String> {
    let told = engine != TailEngine::Auto.name() || tiles_host > 0;
    told.then(|| {
        format!(
            "tail engine {engine}: of {tiles_tail} tiles of the tail the host attended to {tiles_host} where they lie"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_run_proves_nothing() {
        for engine in TailEngine::ALL {
            let nothing = check(engine, 0, 0);
            assert!(matches!(nothing, Err(GateError::NotEngaged)), "{engine:?}");
            assert!(check(engine, 9, 4).is_ok(), "{engine:?}");
        }
        for engine in [TailEngine::Auto, TailEngine::Stream] {
            assert!(check(engine, 9, 0).is_ok(), "{engine:?}");
        }
        for engine in [TailEngine::Host, TailEngine::Hybrid] {
            let error = check(engine, 9, 0).unwrap_err().to_string();
            for word in [engine.name(), "no tile", "--device", "next: "] {
                assert!(error.contains(word), "no {word:?} in: {error}");
            }
        }
    }

    #[test]
    fn the_engine_is_named_where_it_matters() {
        assert_eq!(note("auto", 9, 0), None);
        let hybrid = note("hybrid", 9, 4).unwrap();
        assert!(hybrid.contains("hybrid: of 9 tiles") && hybrid.contains("to 4 "));
        assert!(note("auto", 9, 4).is_some());
        assert!(note("stream", 9, 0).unwrap().contains("to 0 "));
    }
}
