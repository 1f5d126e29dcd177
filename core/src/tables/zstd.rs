//! Takes a column of a Parquet file, gives its pages unpacked, also where they were packed by Zstandard: that is how
//! polars writes ours, and the `parquet` crate knows it only through C.
//!
//! The crate is told that nothing is packed, so that it hands a page on as it lies in the file; the page is unpacked
//! here, in Rust.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::{Compression, CompressionCodec},
    column::page::{Page, PageMetadata, PageReader},
    errors::ParquetError,
    file::{
        reader::FileReader,
        serialized_reader::{SerializedFileReader, SerializedPageReader},
    },
};
use ruzstd::decoding::StreamingDecoder;

/// Of one page, unpacked. Ours have at most some megabytes; a few bytes can unpack to anything.
const MOST_BYTES: u64 = 256 << 20;

/// The pages of a column, whatever they are packed by.
pub(super) fn pages(
    reader: &SerializedFileReader<Bytes>,
    bytes: &Arc<Bytes>,
    group: usize,
    column: usize,
) -> Result<Box<dyn PageReader>, ParquetError> {
    let rows = reader.metadata().row_group(group);
    let chunk = rows.column(column);
    if chunk.compression_codec() != CompressionCodec::ZSTD {
        return reader.get_row_group(group)?.get_column_page_reader(column);
    }
    let as_it_lies = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
    let inner = SerializedPageReader::new(bytes.clone(), &as_it_lies, usize::try_from(rows.num_rows())?, None)?;
    Ok(Box::new(Unpacked(inner)))
}

struct Unpacked(SerializedPageReader<Bytes>);

impl Iterator for Unpacked {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Unpacked {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.0.get_next_page()?.map(unpacked).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.0.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.0.skip_next_page()
    }
}

fn unpacked(mut page: Page) -> Result<Page, ParquetError> {
    match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = unpack(buf, 0)?,
        // The levels of this version lie before the values and are never packed.
        Page::DataPageV2 { buf, is_compressed, def_levels_byte_len, rep_levels_byte_len, .. } if *is_compressed => {
            let levels = def_levels_byte_len.saturating_add(*rep_levels_byte_len);
            *buf = unpack(buf, levels as usize)?;
            *is_compressed = false;
        }
        Page::DataPageV2 { .. } => {}
    }
    Ok(page)
}

/// What lies behind the first `plain` bytes is unpacked, and put behind them.
fn unpack(bytes: &Bytes, plain: usize) -> Result<Bytes, ParquetError> {
    let broken = |error: &dyn std::fmt::Display| ParquetError::General(format!("a page cannot be unpacked: {error}"));
    let (plain, packed) = bytes.split_at_checked(plain).ok_or_else(|| broken(&"it is cut short"))?;
    let mut whole = plain.to_vec();
    if !packed.is_empty() {
        let decoder = StreamingDecoder::new(packed).map_err(|error| broken(&error))?;
        let read = decoder.take(MOST_BYTES).read_to_end(&mut whole).map_err(|error| broken(&error))?;
        if read as u64 == MOST_BYTES {
            return Err(broken(&"it is larger than any of ours"));
        }
    }
    Ok(Bytes::from(whole))
}
