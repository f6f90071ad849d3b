use rolling_kv::{Error, LocalityParams, bin_start, locality};

use crate::common::tiny;
use crate::common::{backend, some_tokens};

fn params() -> LocalityParams {
    LocalityParams {
        first_query: 40,
        first_positions: 4,
        needle: Some((60..70, 190)),
        threads: 1,
    }
}

#[test]
fn the_weights_of_every_head_add_up_and_a_sliding_layer_looks_no_farther_than_it_may() {
    let model = tiny::sliding(&backend());
    let tokens = some_tokens(200, 1);
    let mut read = Vec::new();
    let heads = locality(&model, &tokens, &params(), |done| read.push(done)).unwrap();
    assert_eq!(read, [64, 128, 192, 200]);
    assert_eq!(heads.len(), 4 * 2, "every head of every layer");
    for head in &heads {
        let sum: f64 = head.mass.iter().sum();
        assert!((sum - 1.0).abs() < 1e-3, "{head:?}");
        assert!(
            (head.within(32) + head.beyond(32) + head.first[6..].iter().sum::<f64>() - 1.0).abs()
                < 1e-3
        );
        assert!(head.needle.is_some());
    }
    let far = |layer| {
        let of = heads.iter().filter(move |head| head.layer == layer);
        of.map(|head| head.beyond(64)).sum::<f64>()
    };
    let (sliding, whole): (Vec<u32>, Vec<u32>) = (0..4).partition(|layer| far(*layer) == 0.0);
    assert_eq!((sliding, whole), (vec![0, 2], vec![1, 3]));
    assert_eq!(bin_start(6), 32);
}

#[test]
fn a_model_without_attention_says_so() {
    let model = tiny::recurrent(&backend());
    let error = locality(&model, &some_tokens(80, 1), &params(), |_| {}).unwrap_err();
    assert!(matches!(error, Error::Locality(_)), "{error}");
}
