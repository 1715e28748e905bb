//! The sizes that the delta encodings claim (parquet-format, Encodings.md): the crate makes room for as many values as a stream claims.

const BLOCK_VALUES_MAX: u64 = 1 << 16;

/// A stream of DELTA_BINARY_PACKED integers at the beginning of `data`; returns what follows it. None: it is damaged, or has more values
/// than the page.
pub fn after_integers(data: &[u8], values: u32) -> Option<&[u8]> {
    let mut rest = data;
    let block = varint(&mut rest)?;
    let miniblocks = varint(&mut rest)?;
    let count = varint(&mut rest)?;
    varint(&mut rest)?; // the first value
    if count > u64::from(values) || block > BLOCK_VALUES_MAX || miniblocks == 0 || block % miniblocks != 0 || block == 0 {
        return None;
    }
    let in_miniblock = block / miniblocks;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        varint(&mut rest)?; // the least difference
        let widths = take(&mut rest, miniblocks)?;
        for width in widths {
            if left > 0 {
                take(&mut rest, u64::from(*width) * in_miniblock / 8)?;
                left = left.saturating_sub(in_miniblock);
            }
        }
    }
    Some(rest)
}

fn take<'a>(rest: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(count).ok()?)?;
    *rest = after;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
