//! How many rows a file can mean, asked before they are unpacked: some megabytes of Parquet can hold 20,000,000 times one
//! row, which is 7 GB here.

use std::collections::{HashMap, hash_map::Entry};

use super::{Cause, check::RowCheck, columns::Table};

/// Rows of any table, whatever it says of itself.
pub(super) const MOST_ROWS: usize = 10_000_000;

/// Rows, or numbers in lists, of a table without keys: a byte each at the least, once there are many.
#[cfg(feature = "web")]
pub(super) fn most_in(bytes: usize) -> usize {
    bytes.max(1 << 16)
}

/// What no two rows of results have in common.
pub(super) const KEY: [&str; 5] = ["site", "gemm", "kernel", "mods", "engine"];

/// Rows that are read before the first look at their keys.
const FIRST_ROWS: usize = 4096;

/// Bytes of a text in one row. One of a megabyte is packed once and sent with each row that has it.
pub(super) const LONGEST_TEXT: usize = 64 << 10;

/// The rows that a footer claims, where the file can mean so many.
pub(super) fn claimed(rows: usize, most: usize) -> Result<(), Cause> {
    if rows <= most { Ok(()) } else { Err(Cause::TooManyRows { rows, most }) }
}

/// Refuses the first row whose key another has. `keys` gives the columns of `KEY` of the first so many rows: few at first
/// and then four times as many, so that what is read is no more than a few times what was found to be good.
pub(super) fn each_once<T: Table>(rows: usize, keys: impl Fn(usize) -> Result<T, Cause>) -> Result<(), Cause> {
    let mut num = rows.min(FIRST_ROWS);
    while num > 0 {
        first_twice(&keys(num)?)?;
        if num == rows {
            break;
        }
        num = num.saturating_mul(4).min(rows);
    }
    Ok(())
}

fn first_twice(table: &impl Table) -> Result<(), Cause> {
    let columns = KEY.iter().map(|name| table.text(name)).collect::<Result<Vec<_>, _>>()?;
    let mut known = HashMap::with_capacity(table.height());
    for row in 0..table.height() {
        let key: [_; KEY.len()] = std::array::from_fn(|at| columns[at].word(row));
        match known.entry(key) {
            Entry::Vacant(free) => _ = free.insert(row as u32),
            Entry::Occupied(first) => {
                let text = |at: usize| columns[at].at(row).map_or("", |text| &**text);
                let [site, gemm, kernel, mods, engine] = std::array::from_fn(text);
                let mods = if mods.is_empty() { "no mods" } else { mods };
                return Err(RowCheck { row }.fault(format!(
                    "{site} {gemm} by {kernel} with {mods} on {engine} is in row {} already",
                    first.get() + 1
                )));
            }
        }
    }
    Ok(())
}
