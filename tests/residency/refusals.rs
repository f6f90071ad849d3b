use rolling_kv::{ContextError, ContextParams, FlashAttention, KvType, RollingKv, RollingKvError};

use crate::common::{backend, tiny};

fn refusal(params: &ContextParams, spill: RollingKv) -> RollingKvError {
    let backend = backend();
    let model = tiny::model(&backend);
    match model.context(&params.clone().rolling_kv(spill)) {
        Err(ContextError::RollingKv(why)) => why,
        Err(other) => panic!("another refusal: {other}"),
        Ok(_) => panic!("the context was made"),
    }
}

#[test]
fn a_tile_that_is_no_multiple_of_32_is_refused() {
    for tile in [0, 1, 31, 48, 8224] {
        let why = refusal(
            &ContextParams::new(512),
            RollingKv::resident().tile_cells(tile),
        );
        assert!(
            matches!(why, RollingKvError::Tile { asked, .. } if asked == tile),
            "{why}"
        );
    }
}

#[test]
fn a_layer_that_does_not_exist_is_refused() {
    let why = refusal(
        &ContextParams::new(512),
        RollingKv::resident().layer_window(2, 64),
    );
    assert!(
        matches!(
            why,
            RollingKvError::Layer {
                layer: 2,
                n_layer: 2
            }
        ),
        "{why}"
    );
}

#[test]
fn a_window_without_flash_attention_is_refused() {
    let why = refusal(
        &ContextParams::new(512).flash_attention(FlashAttention::Off),
        RollingKv::window_cells(64),
    );
    assert!(matches!(why, RollingKvError::FlashAttentionOff), "{why}");
}

#[test]
fn a_window_of_a_cache_on_the_host_is_refused() {
    let why = refusal(
        &ContextParams::new(512).kv_on_host(),
        RollingKv::window_cells(64),
    );
    assert!(matches!(why, RollingKvError::CacheOnHost), "{why}");
}

#[test]
fn a_window_of_an_f32_cache_is_refused() {
    for (k, v) in [(KvType::F32, KvType::F16), (KvType::F16, KvType::F32)] {
        let why = refusal(
            &ContextParams::new(512).cache_types(k, v),
            RollingKv::window_cells(64),
        );
        assert!(matches!(why, RollingKvError::CacheOfF32), "{why}");
    }
}

#[test]
fn a_window_for_a_layer_that_slides_by_itself_is_refused() {
    let backend = backend();
    let model = tiny::sliding(&backend);
    let params = ContextParams::new(512);
    let layers = model
        .context(&params.clone().rolling_kv(RollingKv::resident()))
        .expect("the resident context is made")
        .residency()
        .layers;
    for layer in layers {
        let spill = RollingKv::window_cells(128).layer_window(layer.layer, 0);
        let made = model.context(&params.clone().rolling_kv(spill));
        match made {
            Ok(_) => assert!(!layer.sliding, "layer {} is not refused", layer.layer),
            Err(why) => {
                assert!(layer.sliding, "{why}");
                let named = format!("layer {} looks back 32 tokens", layer.layer);
                assert!(why.to_string().contains(&named), "{why}");
            }
        }
    }
}
