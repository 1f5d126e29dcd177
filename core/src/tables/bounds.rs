//! How many rows a file can mean, asked before they are unpacked: some megabytes of Parquet can hold 20,000,000 times one
//! row, which is 7 GB here.

use super::{
    Cause,
    check::RowCheck,
    columns::{Table, Texts},
};

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
/// and then four times as many, so that what is read is no more than a few times what was found to be good. Gives those of
/// all rows; `None`: there are no rows.
pub(super) fn each_once<T: Table>(rows: usize, keys: impl Fn(usize) -> Result<T, Cause>) -> Result<Option<T>, Cause> {
    let mut num = rows.min(FIRST_ROWS);
    while num > 0 {
        let table = keys(num)?;
        first_twice(&table)?;
        if num == rows {
            return Ok(Some(table));
        }
        num = num.saturating_mul(4).min(rows);
    }
    Ok(None)
}

fn first_twice(table: &impl Table) -> Result<(), Cause> {
    let columns = KEY.iter().map(|name| table.text(name)).collect::<Result<Vec<_>, _>>()?;
    // The places of a row's words in one number, which has room for five columns of as many words as there can be rows.
    let sizes: Vec<u128> = columns.iter().map(|texts| texts.num_words() as u128 + 1).collect();
    let word = |texts: &Texts<'_>, row| texts.word(row).map_or(0, |word| u128::from(word) + 1);
    let key = |row| columns.iter().zip(&sizes).fold(0, |key, (texts, size)| key * size + word(texts, row));
    let keys: Vec<u128> = (0..table.height()).map(key).collect();
    // Words are numbered as they come: the keys of a file that was written in any one order rise.
    if keys.is_sorted_by(|before, key| before < key) {
        return Ok(());
    }
    let mut rows: Vec<u32> = (0..keys.len() as u32).collect();
    rows.sort_unstable_by_key(|row| (keys[*row as usize], *row));
    let again = rows.windows(2).filter(|pair| keys[pair[0] as usize] == keys[pair[1] as usize]);
    let Some(pair) = again.min_by_key(|pair| pair[1]) else { return Ok(()) };
    let [first, row] = [pair[0], pair[1]].map(|row| row as usize);
    let text = |at: usize| columns[at].at(row).map_or("", |text| &**text);
    let [site, gemm, kernel, mods, engine] = std::array::from_fn(text);
    let mods = if mods.is_empty() { "no mods" } else { mods };
    let line = format!("{site} {gemm} by {kernel} with {mods} on {engine} is in row {} already", first + 1);
    Err(RowCheck { row }.fault(line))
}
