use rolling_kv::ContextParams;

use crate::common::{backend, logits_after, some_tokens, tiny};

#[test]
fn every_kind_of_tiny_model_runs() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let mut context = model
            .context(&ContextParams::new(256).threads(2))
            .expect(name);
        let logits = logits_after(&mut context, 0, &some_tokens(20, 1));
        assert_eq!(logits.len(), tiny::n_vocab(), "{name}");
        assert!(logits.iter().all(|logit| logit.is_finite()), "{name}");
        assert!(
            logits.iter().any(|logit| logit.abs() > 1e-3),
            "{name}: {:?}",
            &logits[..8]
        );
        assert_eq!(
            context.positions(0).unwrap(),
            if ["recurrent", "hybrid"].contains(&name) {
                Some(19..=19)
            } else {
                Some(0..=19)
            },
            "{name}"
        );
    }
}
