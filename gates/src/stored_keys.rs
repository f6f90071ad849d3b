//! Keys as a cache stores them, as floats.

use rolling_kv::KvType;

use crate::error::GateError;

/// A half-precision float (IEEE 754 binary16).
fn half(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1F);
    let mantissa = f32::from(bits & 0x3FF);
    sign * if exponent == 0 {
        mantissa * 2f32.powi(-24)
    } else {
        (1024.0 + mantissa) * 2f32.powi(exponent - 25)
    }
}

/// The floats of one row, in its own order. A row of q8_0 is blocks of a half-precision scale and 32 signed bytes.
pub fn floats(kv_type: KvType, row: &[u8]) -> Result<Vec<f32>, GateError> {
    match kv_type {
        KvType::F32 => Ok(row
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect()),
        KvType::F16 => Ok(row.chunks_exact(2).map(|b| half([b[0], b[1]])).collect()),
        KvType::Q8_0 => Ok(row
            .chunks_exact(34)
            .flat_map(|block| {
                let scale = half([block[0], block[1]]);
                block[2..]
                    .iter()
                    .map(move |&byte| scale * f32::from(byte.cast_signed()))
            })
            .collect()),
        other => Err(GateError::KeyType(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_ieee_754_says() {
        for (bits, value) in [
            (0x0000u16, 0.0f32),
            (0x3C00, 1.0),
            (0xC000, -2.0),
            (0x0001, 5.960_464_5e-8),
            (0x7BFF, 65504.0),
        ] {
            assert_eq!(half(bits.to_le_bytes()), value);
        }
    }

    #[test]
    fn a_block_of_q8_0_is_scaled_bytes() {
        let mut block = vec![0u8; 34];
        block[..2].copy_from_slice(&0x3800u16.to_le_bytes());
        block[2] = 6;
        block[33] = (-4i8).cast_unsigned();
        let found = floats(KvType::Q8_0, &block).unwrap();
        assert_eq!((found.len(), found[0], found[31]), (32, 3.0, -2.0));
    }

    #[test]
    fn a_type_that_is_not_read_is_named() {
        let error = floats(KvType::Q4_1, &[]).unwrap_err();
        assert!(error.to_string().contains("q4_1"), "{error}");
    }
}
