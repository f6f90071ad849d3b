use rolling_kv::Token;
use serde::Serialize;

/// How one run's logits differ from another's, over all compared positions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Positions compared.
    pub positions: usize,
    /// Whether every logit has the same 32 bits.
    pub bits_equal: bool,
    /// Logits with other bits.
    pub bits_differ: u64,
    /// Largest difference of two logits.
    pub max_abs: f64,
    /// Mean square of the differences over the mean square of the reference's logits.
    pub nmse: f64,
    /// Mean over the positions of the Kullback-Leibler divergence from the reference's distribution, in nats.
    pub kld_mean: f64,
    /// The divergence that 99 of 100 positions stay below, in nats.
    pub kld_p99: f64,
    /// Largest divergence of a position, in nats.
    pub kld_max: f64,
    /// Share of positions at which both name the same token first.
    pub top1: f64,
    /// Share of the five most probable tokens that both name, mean over the positions.
    pub top5: f64,
    /// Largest difference of two logits, for each position.
    #[serde(skip)]
    pub max_abs_at: Vec<f64>,
}

impl Comparison {
    /// What the figures of [`Self::cells`] are.
    pub const HEAD: [&str; 9] = [
        "positions",
        "bits",
        "max |dlogit|",
        "NMSE",
        "KLD mean",
        "KLD p99",
        "KLD max",
        "top-1",
        "top-5",
    ];

    /// One row of a table.
    #[must_use]
    pub fn cells(&self) -> [String; 9] {
        [
            self.positions.to_string(),
            if self.bits_equal { "equal" } else { "differ" }.to_owned(),
            format!("{:.3e}", self.max_abs),
            format!("{:.3e}", self.nmse),
            format!("{:.3e}", self.kld_mean),
            format!("{:.3e}", self.kld_p99),
            format!("{:.3e}", self.kld_max),
            format!("{:.2}%", 100.0 * self.top1),
            format!("{:.2}%", 100.0 * self.top5),
        ]
    }

    /// Compares rows of `n_vocab` logits; both must have the same length.
    #[must_use]
    pub fn new(reference: &[f32], other: &[f32], n_vocab: usize) -> Self {
        let positions = reference.len() / n_vocab;
        let mut sums = Self {
            positions,
            bits_equal: true,
            bits_differ: 0,
            max_abs: 0.0,
            nmse: 0.0,
            kld_mean: 0.0,
            kld_p99: 0.0,
            kld_max: 0.0,
            top1: 0.0,
            top5: 0.0,
            max_abs_at: Vec::with_capacity(positions),
        };
        let mut divergences = Vec::with_capacity(positions);
        let (mut error, mut power) = (0.0, 0.0);

        for (a, b) in reference
            .chunks_exact(n_vocab)
            .zip(other.chunks_exact(n_vocab))
        {
            let mut max_abs = 0.0f64;
            for (x, y) in a.iter().zip(b) {
                let (x64, y64) = (f64::from(*x), f64::from(*y));
                sums.bits_differ += u64::from(x.to_bits() != y.to_bits());
                max_abs = max_abs.max((x64 - y64).abs());
                error += (x64 - y64).powi(2);
                power += x64 * x64;
            }
            sums.max_abs = sums.max_abs.max(max_abs);
            sums.max_abs_at.push(max_abs);
            let kld = divergence(a, b);
            sums.kld_mean += kld;
            sums.kld_max = sums.kld_max.max(kld);
            divergences.push(kld);
            sums.top5 += shared(&top(a), &top(b));
            sums.top1 += f64::from(u8::from(best(a) == best(b)));
        }

        sums.bits_equal = sums.bits_differ == 0;
        let count = positions.max(1) as f64;
        sums.nmse = if power > 0.0 { error / power } else { 0.0 };
        sums.kld_mean /= count;
        sums.top1 /= count;
        sums.top5 /= count;
        divergences.sort_by(f64::total_cmp);
        sums.kld_p99 = divergences
            .get((positions * 99).div_ceil(100).saturating_sub(1))
            .copied()
            .unwrap_or(0.0);
        sums
    }
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&i, &j| logits[i].total_cmp(&logits[j]))
}

/// The five most probable tokens, or all where there are fewer.
fn top(logits: &[f32]) -> Vec<usize> {
    const MOST: usize = 5;
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let by_logit = |i: &usize, j: &usize| logits[*j].total_cmp(&logits[*i]).then(i.cmp(j));
    if order.len() > MOST {
        order.select_nth_unstable_by(MOST, by_logit);
        order.truncate(MOST);
    }
    order
}

/// Share of one list that stands in the other.
fn shared(left: &[usize], right: &[usize]) -> f64 {
    let held = left.iter().filter(|token| right.contains(token)).count();
    held as f64 / left.len().max(1) as f64
}

/// Sum over the vocabulary of p (ln p - ln q), both from a softmax in double precision.
fn divergence(reference: &[f32], other: &[f32]) -> f64 {
    let (p_shift, q_shift) = (log_sum_exp(reference), log_sum_exp(other));
    reference
        .iter()
        .zip(other)
        .map(|(x, y)| {
            let (ln_p, ln_q) = (f64::from(*x) - p_shift, f64::from(*y) - q_shift);
            ln_p.exp() * (ln_p - ln_q)
        })
        .sum()
}

/// Mean of what each next token came as a surprise, in nats; where a position has none, it does not count.
pub fn surprise(logits: &[f32], n_vocab: usize, next: &[Option<Token>]) -> f64 {
    let rows = logits.chunks_exact(n_vocab).zip(next);
    let found: Vec<f64> = rows
        .filter_map(|(row, next)| next.map(|next| -log_prob(row, next)))
        .collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

/// Natural logarithm of a token's probability, in double precision.
pub fn log_prob(logits: &[f32], token: Token) -> f64 {
    logits
        .get(token.0 as usize)
        .map_or(f64::NEG_INFINITY, |logit| {
            f64::from(*logit) - log_sum_exp(logits)
        })
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max)
        + logits
            .iter()
            .map(|x| (f64::from(*x) - f64::from(max)).exp())
            .sum::<f64>()
            .ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_have_no_distance() {
        let rows = [1.0, 2.0, 3.0, -1.0, 0.5, 0.0];
        let found = Comparison::new(&rows, &rows, 3);
        assert!(found.bits_equal);
        assert_eq!(
            (
                found.positions,
                found.max_abs,
                found.nmse,
                found.kld_mean,
                found.top1
            ),
            (2, 0.0, 0.0, 0.0, 1.0)
        );
    }

    #[test]
    fn one_changed_bit_is_seen() {
        let rows = [1.0_f32, 2.0, 3.0];
        let mut other = rows;
        other[0] = f32::from_bits(other[0].to_bits() ^ 1);
        let found = Comparison::new(&rows, &other, 3);
        assert!(!found.bits_equal && found.bits_differ == 1);
    }

    #[test]
    fn divergence_of_two_coins_is_the_known_one() {
        // p = (1/2, 1/2), q = (1/4, 3/4): ln 2 - (ln 3)/2 nats
        let found = Comparison::new(&[0.0, 0.0], &[0.0, 3.0_f32.ln()], 2);
        let expected = 0.5 * (0.5_f64 / 0.25).ln() + 0.5 * (0.5_f64 / 0.75).ln();
        assert!(
            (found.kld_mean - expected).abs() < 1e-7,
            "{} against {expected}",
            found.kld_mean
        );
        assert_eq!(found.kld_max, found.kld_mean);
    }

    #[test]
    fn one_of_five_other_tokens_and_the_last_hundredth_are_seen() {
        let left = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        let right = [6.0, 5.0, 4.0, 3.0, 0.0, 1.0, 2.0];
        let found = Comparison::new(&left, &right, 7);
        assert!((found.top5 - 0.8).abs() < 1e-12 && found.top1 == 1.0);

        let mut rows = vec![0.0f32; 200];
        rows[199] = 9.0;
        let found = Comparison::new(&vec![0.0; 200], &rows, 2);
        assert!(found.kld_max > 1.0 && found.kld_p99 == 0.0, "{found:?}");
    }

    #[test]
    fn probabilities_add_up_to_one_and_a_sure_token_is_no_surprise() {
        let logits = [1.0, -2.0, 3.5, 0.0];
        let sum: f64 = (0..4)
            .map(|token| log_prob(&logits, Token(token)).exp())
            .sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert_eq!(log_prob(&logits, Token(9)), f64::NEG_INFINITY);

        let rows = [0.0, 0.0, 50.0, 0.0];
        let found = surprise(&rows, 2, &[Some(Token(1)), Some(Token(0))]);
        assert!((found - 0.5 * 2f64.ln()).abs() < 1e-12, "{found}");
        assert!(surprise(&rows, 2, &[None, Some(Token(0))]) < 1e-12);
    }

    #[test]
    fn a_difference_is_told_where_it_is() {
        let found = Comparison::new(&[0.0, 1.0, 0.0, 1.0], &[0.0, 1.0, 0.0, 3.0], 2);
        assert_eq!(found.max_abs_at, [0.0, 2.0]);
    }

    #[test]
    fn another_first_token_lowers_top1() {
        let found = Comparison::new(&[0.0, 1.0, 0.0, 1.0], &[0.0, 1.0, 1.0, 0.0], 2);
        assert_eq!(found.top1, 0.5);
    }
}
