//! Where a tensor lies that the worker reads or writes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F32,
    Bf16,
    F8e4m3,
    U8,
}

impl Dtype {
    pub fn item_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::F8e4m3 | Self::U8 => 1,
        }
    }
}

/// A dense row-major tensor: device memory of this process, or a raw little-endian file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    #[serde(flatten)]
    place: HandlePlace,
    dtype: Dtype,
    shape: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum HandlePlace {
    Ipc { ipc: String, offset: u64, bytes: u64 },
    File { file: PathBuf },
}

impl Handle {
    /// Memory behind a CUDA IPC handle (`cuIpcGetMemHandle` of the whole allocation), `offset` bytes
    /// in. Not copied: the worker reads and writes it where it is.
    pub fn ipc(handle: &[u8; 64], offset: u64, dtype: Dtype, shape: &[usize]) -> Self {
        let ipc = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { place: HandlePlace::Ipc { ipc, offset, bytes: num_bytes(dtype, shape) }, dtype, shape: shape.to_vec() }
    }

    /// A file, for where IPC is refused. Made absolute: the worker runs in another folder.
    pub fn file(path: &Path, dtype: Dtype, shape: &[usize]) -> Self {
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        Self { place: HandlePlace::File { file }, dtype, shape: shape.to_vec() }
    }

    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn num_bytes(&self) -> u64 {
        num_bytes(self.dtype, &self.shape)
    }
}

fn num_bytes(dtype: Dtype, shape: &[usize]) -> u64 {
    (shape.iter().product::<usize>() * dtype.item_bytes()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_read_as_the_worker_expects_them() {
        let mut raw = [0u8; 64];
        raw[0] = 0x0a;
        let ipc = Handle::ipc(&raw, 256, Dtype::F32, &[2, 3]);
        let text = serde_json::to_value(&ipc).unwrap();
        let expected = format!("0a{}", "00".repeat(63));
        assert_eq!(
            text,
            serde_json::json!({"ipc": expected, "offset": 256, "bytes": 24, "dtype": "f32", "shape": [2, 3]})
        );
        assert_eq!(serde_json::from_value::<Handle>(text).unwrap(), ipc);

        let file = Handle::file(Path::new("/tmp/a"), Dtype::F8e4m3, &[4]);
        let text = serde_json::to_value(&file).unwrap();
        assert_eq!(text, serde_json::json!({"file": "/tmp/a", "dtype": "f8e4m3", "shape": [4]}));
        assert_eq!((file.num_bytes(), file.dtype(), file.shape()), (4, Dtype::F8e4m3, &[4][..]));
    }

    #[test]
    fn a_relative_file_becomes_absolute() {
        let text = serde_json::to_value(Handle::file(Path::new("a.bin"), Dtype::U8, &[1])).unwrap();
        assert!(Path::new(text["file"].as_str().unwrap()).is_absolute());
    }
}
