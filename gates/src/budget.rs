//! Two levers on the device memory that a KV cache takes, kept apart. The exact one places cells and changes no bit. The lossy one lets
//! layers see the first and the newest tokens only; it is offered with what it loses, and what loses too much is rejected.

mod exact;
mod listen;
mod local;
mod predict;
mod search;
mod split;

use rolling_kv::{ContextParams, Model};

pub use exact::{ExactLever, ExactReport, SplitResult};
pub use local::{LayerReach, LocalLever, LocalReport, LocalTrial};
pub use split::Split;

use crate::budget_report::{BudgetReport, BudgetThresholds};
use crate::error::GateError;
use crate::store::Store;
use crate::subject;

/// Both levers on one model.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Placement.
    pub exact: ExactLever,
    /// Local layers; `None`: they are not tried.
    pub local: Option<LocalLever>,
    /// By which numbers it is judged.
    pub thresholds: BudgetThresholds,
}

impl Budget {
    /// Measures: placement on `model`, whose layers lie on a device behind a link, and local layers on `cpu`, the same weights without the
    /// device, which computes the same and sooner. `progress` is told what is being done and the share of it that is done; what `store`
    /// knows is not measured again.
    ///
    /// # Errors
    /// When a run is not possible, or when it would prove nothing.
    pub fn run(
        &self,
        model: &Model,
        cpu: &Model,
        store: &mut Store,
        mut progress: impl FnMut(&'static str, f64),
    ) -> Result<BudgetReport, GateError> {
        subject::check(model)?;
        subject::fits(model, "the text", self.exact.n_ctx, "--ctx")?;
        if let Some(lever) = &self.local {
            lever.check(cpu)?;
        }
        let exact = self.exact.run(model, store, &mut progress)?;
        let local = match &self.local {
            Some(lever) => Some(lever.run(cpu, &self.thresholds, store, &mut progress)?),
            None => None,
        };
        Ok(BudgetReport::judge(exact, local, &self.thresholds))
    }
}

/// Layers that keep every token in a cache of their own.
fn splittable(model: &Model) -> Result<Vec<u32>, GateError> {
    const CELLS: u32 = 256;
    let residency = model.context(&ContextParams::new(CELLS))?.residency();
    let layers = residency.layers.iter().filter(|layer| !layer.sliding);
    Ok(layers.map(|layer| layer.layer).collect())
}
