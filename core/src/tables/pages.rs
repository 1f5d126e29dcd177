//! Takes a column of a Parquet file in memory, gives its pages unpacked. The `parquet` crate finds them; it is told that
//! nothing is packed, so that it hands them on as they lie in the file. They are unpacked here: it knows Zstandard,
//! which ours are packed by, only through C, and it makes as much room as a page claims, which a broken one does of
//! anything.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use parquet::{
    basic::{Compression, CompressionCodec},
    column::page::{Page, PageReader},
    errors::ParquetError,
    file::{metadata::RowGroupMetaData, serialized_reader::SerializedPageReader},
};
use ruzstd::decoding::StreamingDecoder;

use super::thrift;

/// Of one page, unpacked. Writers begin a new one at a megabyte; a few bytes can unpack to anything.
const MOST_BYTES: usize = 16 << 20;

/// The pages of one column in one group of rows.
pub(super) struct Pages {
    reader: SerializedPageReader<Bytes>,
    codec: CompressionCodec,
}

impl Pages {
    pub(super) fn of(file: &Arc<Bytes>, group: &RowGroupMetaData, column: usize) -> Result<Self, ParquetError> {
        let chunk = group.column(column);
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        // The crate panics on these.
        let range = || {
            let end = start.checked_add(chunk.compressed_size())?;
            file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        };
        let bytes = range().ok_or_else(|| ParquetError::General("a column lies outside of the file".to_owned()))?;
        if !thrift::are_sound_pages(bytes) {
            return Err(ParquetError::General("the header of a page is damaged".to_owned()));
        }
        let codec = chunk.compression_codec();
        if !matches!(codec, CompressionCodec::UNCOMPRESSED | CompressionCodec::SNAPPY | CompressionCodec::ZSTD) {
            return Err(ParquetError::NYI(format!("its pages are packed by {codec:?}: save it again with loka")));
        }
        let as_it_lies = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(group.num_rows())?;
        Ok(Self { reader: SerializedPageReader::new(file.clone(), &as_it_lies, rows, None)?, codec })
    }

    fn unpacked(&self, mut page: Page) -> Result<Page, ParquetError> {
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = unpack(self.codec, buf, 0)?,
            // The levels of this version lie before the values and are never packed.
            Page::DataPageV2 { buf, is_compressed: true, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = def_levels_byte_len.saturating_add(*rep_levels_byte_len);
                *buf = unpack(self.codec, buf, levels as usize)?;
            }
            Page::DataPageV2 { .. } => {}
        }
        Ok(page)
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.reader.get_next_page().transpose()?;
        Some(page.and_then(|page| self.unpacked(page)))
    }
}

/// What lies behind the first `plain` bytes is unpacked, and put behind them.
fn unpack(codec: CompressionCodec, bytes: &Bytes, plain: usize) -> Result<Bytes, ParquetError> {
    let broken = |error: &dyn std::fmt::Display| ParquetError::General(format!("a page cannot be unpacked: {error}"));
    let (plain, packed) = bytes.split_at_checked(plain).ok_or_else(|| broken(&"it is cut short"))?;
    if packed.is_empty() || codec == CompressionCodec::UNCOMPRESSED {
        return Ok(bytes.clone());
    }
    let mut whole = plain.to_vec();
    if codec == CompressionCodec::SNAPPY {
        let size = snap::raw::decompress_len(packed).map_err(|error| broken(&error))?;
        if size > MOST_BYTES {
            return Err(broken(&"it is larger than any of ours"));
        }
        whole.extend(snap::raw::Decoder::new().decompress_vec(packed).map_err(|error| broken(&error))?);
        return Ok(whole.into());
    }
    let decoder = StreamingDecoder::new(packed).map_err(|error| broken(&error))?;
    let read = decoder.take(MOST_BYTES as u64).read_to_end(&mut whole).map_err(|error| broken(&error))?;
    if read == MOST_BYTES {
        return Err(broken(&"it is larger than any of ours"));
    }
    Ok(whole.into())
}
