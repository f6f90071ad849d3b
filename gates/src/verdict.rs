use serde::Serialize;

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every threshold holds.
    Pass,
    /// Some threshold does not hold.
    Fail,
}
