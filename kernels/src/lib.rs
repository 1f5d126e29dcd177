//! Takes nothing; gives the CUDA C++ kernels of LoKA as text, and what is known of each: entry
//! symbol, headers, architectures, and how to launch it.
//!
//! Nothing is compiled here, so the package builds for the browser too. Whoever runs a kernel
//! compiles `source` with NVRTC for one of `architectures`, hands NVRTC the `headers` under the
//! names they are included by, looks up `entry`, and launches it by `launch`.
//! `scripts/compile_kernels.py` does the first part for every kernel, `scripts/check_kernels_gpu.py`
//! runs them on a GPU and compares bit for bit with what the CPU gives.

/// One kernel: a file of `cu/`, named like its entry symbol.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource {
    /// The `extern "C"` symbol.
    pub entry: &'static str,
    /// CUDA C++, without the headers.
    pub source: &'static str,
    /// What `source` includes, directly or through another header.
    pub headers: &'static [Header],
    /// Values for NVRTC's `--gpu-architecture`, as the file's first line names them.
    pub architectures: &'static [&'static str],
    pub launch: Launch,
    /// One sentence: what it takes and gives.
    pub about: &'static str,
}

/// A file for NVRTC's list of headers. By name rather than pasted in front of the source, so that
/// the compiler's messages name the file and line that a person can open.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// As `#include` writes it.
    pub name: &'static str,
    pub text: &'static str,
}

/// How to launch a kernel over a row-major `[rows, cols]` operand, and the arguments it takes.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub threads: Threads,
    pub blocks: Blocks,
    /// In the order of the kernel's parameters. No kernel here wants dynamic shared memory.
    pub arguments: &'static [Argument],
}

/// Threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    Fixed(u32),
    /// As many as hold a row at `columns` each, in whole warps, from 32 to 1024.
    PerRow {
        columns: u32,
    },
}

/// Blocks of the grid, in x alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    PerRow,
    /// One for `elements`, but no more than `most` a multiprocessor: the blocks stride over the rest.
    PerElements {
        elements: u32,
        most: u32,
    },
}

/// One parameter of a kernel. Pointers are device addresses; all of them 16-byte aligned for full speed.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Pointer,
    U32,
    U64,
}

impl Launch {
    /// Threads of a block for rows of `cols`.
    pub fn num_threads(&self, cols: u64) -> u32 {
        match self.threads {
            Threads::Fixed(threads) => threads,
            // Between 32 and 1024 by the clamp, so the conversion cannot fail.
            Threads::PerRow { columns } => {
                let threads = cols.div_ceil(u64::from(columns)).next_multiple_of(32).clamp(32, 1024);
                u32::try_from(threads).unwrap_or(1024)
            }
        }
    }

    /// Blocks of the grid on a GPU of `multiprocessors`. 0 when there is nothing to do: do not launch.
    pub fn num_blocks(&self, rows: u64, cols: u64, multiprocessors: u32) -> u64 {
        match self.blocks {
            Blocks::PerRow => rows,
            Blocks::PerElements { elements, most } => {
                let wanted = rows.saturating_mul(cols).div_ceil(u64::from(elements));
                wanted.min(u64::from(most) * u64::from(multiprocessors))
            }
        }
    }
}

const fn pointer(name: &'static str) -> Argument {
    Argument { name, kind: ArgumentKind::Pointer }
}

const fn number(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, kind }
}

const COMMON: &[Header] = &[
    Header { name: "common/types.cuh", text: include_str!("../cu/common/types.cuh") },
    Header { name: "common/fp8.cuh", text: include_str!("../cu/common/fp8.cuh") },
    Header { name: "common/warp.cuh", text: include_str!("../cu/common/warp.cuh") },
];

/// Casts need no tensor cores: each architecture with an FP8 conversion instruction runs them.
const WITH_FP8_CASTS: &[&str] = &["sm_89", "sm_90a", "sm_100a"];

/// Every kernel, sorted by entry symbol.
pub const SOURCES: &[KernelSource] = &[
    KernelSource {
        entry: "cast_e4m3_rowwise",
        source: include_str!("../cu/cast_e4m3_rowwise.cu"),
        headers: COMMON,
        architectures: WITH_FP8_CASTS,
        launch: Launch {
            // 32 columns a thread is what it can keep in registers between amax and cast.
            threads: Threads::PerRow { columns: 32 },
            blocks: Blocks::PerRow,
            arguments: &[
                pointer("x"),
                pointer("codes"),
                pointer("scales"),
                number("cols", ArgumentKind::U32),
                number("power_of_two", ArgumentKind::U32),
            ],
        },
        about: "BF16 rows to E4M3 codes and one FP32 scale a row, amax and cast in one pass over memory.",
    },
    KernelSource {
        entry: "cast_e4m3_static",
        source: include_str!("../cu/cast_e4m3_static.cu"),
        headers: COMMON,
        architectures: WITH_FP8_CASTS,
        launch: Launch {
            threads: Threads::Fixed(256),
            // 256 threads of four 8-element vectors.
            blocks: Blocks::PerElements { elements: 8192, most: 8 },
            arguments: &[
                pointer("x"),
                pointer("scale_at"),
                pointer("codes"),
                pointer("saturated_total"),
                number("count", ArgumentKind::U64),
            ],
        },
        about: "BF16 to E4M3 codes by a scale known beforehand, counting the elements that saturate.",
    },
];

/// The kernel with this entry symbol.
pub fn find(entry: &str) -> Option<&'static KernelSource> {
    SOURCES.iter().find(|kernel| kernel.entry == entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text between the parentheses after the entry symbol, one item a parameter.
    fn parameters(kernel: &KernelSource) -> Vec<&'static str> {
        let call = format!("\n{}(", kernel.entry);
        let (_, rest) = kernel.source.split_once(&call).expect("entry symbol at the start of a line");
        let (inside, _) = rest.split_once(')').expect("parameters end");
        inside.split(',').map(str::trim).collect()
    }

    #[test]
    fn every_source_defines_its_entry_with_the_arguments_listed() {
        for kernel in SOURCES {
            assert!(kernel.source.contains("extern \"C\" __global__"), "{}", kernel.entry);
            let parameters = parameters(kernel);
            assert_eq!(parameters.len(), kernel.launch.arguments.len(), "{}", kernel.entry);
            for (parameter, argument) in parameters.iter().zip(kernel.launch.arguments) {
                assert!(parameter.ends_with(argument.name), "{parameter}: {}", argument.name);
                let kind = match parameter.split_once(' ') {
                    _ if parameter.contains('*') => ArgumentKind::Pointer,
                    Some(("u32", _)) => ArgumentKind::U32,
                    Some(("u64", _)) => ArgumentKind::U64,
                    _ => panic!("{parameter}"),
                };
                assert_eq!(kind, argument.kind, "{parameter}");
            }
        }
    }

    /// The compile script reads the first line of the file, the program the list: they must agree.
    #[test]
    fn architectures_agree_with_the_first_line() {
        for kernel in SOURCES {
            let first = kernel.source.lines().next().expect("a first line");
            let named = first.strip_prefix("// architectures: ").expect("the list of architectures");
            assert_eq!(named.split(' ').collect::<Vec<_>>(), kernel.architectures, "{}", kernel.entry);
            assert!(!kernel.architectures.is_empty());
        }
    }

    #[test]
    fn every_file_is_listed_and_every_include_is_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cu");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("cu")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".cu").map(str::to_owned))
            .collect();
        files.sort();
        assert_eq!(files, SOURCES.iter().map(|kernel| kernel.entry).collect::<Vec<_>>());
        for kernel in SOURCES {
            let texts = kernel.headers.iter().map(|header| header.text).chain([kernel.source]);
            for line in texts.flat_map(str::lines).filter(|line| line.starts_with("#include")) {
                let name = line.split('"').nth(1).expect("a quoted name: no toolkit headers");
                assert!(kernel.headers.iter().any(|header| header.name == name), "{}: {name}", kernel.entry);
            }
        }
    }

    #[test]
    fn launches() {
        let rowwise = find("cast_e4m3_rowwise").expect("listed").launch;
        for (cols, threads) in [(0, 32), (1, 32), (1024, 32), (1025, 64), (4096, 128), (32768, 1024), (1 << 20, 1024)] {
            assert_eq!(rowwise.num_threads(cols), threads, "{cols}");
        }
        assert_eq!(rowwise.num_blocks(8192, 4096, 132), 8192);
        let fixed = find("cast_e4m3_static").expect("listed").launch;
        assert_eq!(fixed.num_threads(4096), 256);
        assert_eq!(fixed.num_blocks(8192, 4096, 132), 1056);
        assert_eq!(fixed.num_blocks(1, 8193, 132), 2);
        assert_eq!(fixed.num_blocks(0, 4096, 132), 0);
    }

    /// `Divisor::corrected` of `cu/common/fp8.cuh`. Powers of two change nothing, so mantissas are all there is.
    fn mismatches(scale_mantissas: impl Iterator<Item = u32>) -> u64 {
        let mut wrong = 0;
        for mantissa in scale_mantissas {
            let scale = f32::from_bits(0x3F80_0000 | mantissa);
            let reciprocal = 1.0 / scale;
            for value in 0..128 {
                let value = f32::from_bits(0x3F80_0000 | value << 16);
                let quotient = value * reciprocal;
                let remainder = (-quotient).mul_add(scale, value);
                wrong += u64::from(remainder.mul_add(reciprocal, quotient) != value / scale);
            }
        }
        wrong
    }

    #[test]
    fn the_corrected_quotient_is_the_quotient() {
        // Near multiples of 1/8 quotients come closest to the ties of E4M3.
        let near =
            (0..=8u32).flat_map(|eighth| (0..256).map(move |ulp| (eighth << 20).wrapping_add(ulp).wrapping_sub(128)));
        let near = near.filter(|mantissa| *mantissa < 1 << 23);
        assert_eq!(mismatches(near.chain((0..1 << 23).step_by(1021))), 0);
    }

    #[test]
    #[ignore = "2^30 divisions: run with --release"]
    fn the_corrected_quotient_is_the_quotient_for_every_mantissa() {
        assert_eq!(mismatches(0..1 << 23), 0);
    }
}
