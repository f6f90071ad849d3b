/// Why no locality could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalityError {
    /// The model computes its attention without writing weights down.
    #[error(
        "no attention weights were seen: this model computes its attention in another way, so its locality cannot be measured"
    )]
    NoWeights,
}
