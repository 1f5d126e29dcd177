//! Takes nothing; gives the CUDA C++ kernels of LoKA as text, and what is known of each: entry
//! symbol, headers, architectures, arguments, and the geometry of a launch.
//!
//! Nothing is compiled here, so the package builds for the browser too. Whoever runs a kernel
//! compiles `source` with NVRTC for one of `architectures`, hands NVRTC the `headers` under the
//! names they are included by, looks up `entry`, and launches it on the [`LaunchGrid`] that the kernel's
//! function in [`casts`], [`gemm`], [`norms`] or [`probing`] gives. `scripts/compile_kernels.py` does the first part for
//! every kernel.

pub mod casts;
pub mod gemm;
mod kernel;
pub mod norms;
pub mod probing;

pub use kernel::{Argument, ArgumentKind, Header, KernelSource, LaunchGrid};
pub(crate) use kernel::{CAST, FP8, TYPES, WARP, WITH_FP8_CASTS, number, pointer};

/// Every kernel: the casts, the GEMMs, what follows them, then what probing needs; each list sorted by entry symbol.
pub fn sources() -> impl Iterator<Item = &'static KernelSource> {
    let gemms = gemm::GEMMS.iter().chain(gemm::STATIC_GEMMS).chain(gemm::BLOCKS);
    casts::CASTS.iter().chain(gemms).chain(norms::NORMS).chain(probing::PROBING)
}

/// The kernel with this entry symbol.
pub fn find(entry: &str) -> Option<&'static KernelSource> {
    sources().find(|kernel| kernel.entry == entry)
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

    /// The kernel's own text and that of its headers.
    fn texts(kernel: &KernelSource) -> impl Iterator<Item = &'static str> {
        kernel.headers.iter().map(|header| header.text).chain([kernel.source])
    }

    fn agrees(kernel: &KernelSource, parameter: &str, kind: ArgumentKind) -> bool {
        let kind_name = parameter.trim_start_matches("const ").trim_start_matches("__grid_constant__ ");
        match (kind, kind_name.split_once(' ')) {
            (ArgumentKind::Pointer, _) => parameter.contains('*'),
            (_, _) if parameter.contains('*') => false,
            (ArgumentKind::U32, Some((name, _))) => name == "u32",
            (ArgumentKind::U64, Some((name, _))) => name == "u64",
            (ArgumentKind::F32, Some((name, _))) => name == "float",
            (ArgumentKind::Struct(bytes), Some((name, _))) => {
                let head = format!("struct {name} {{");
                let size = format!("static_assert(sizeof({name}) == {bytes}");
                texts(kernel).any(|text| text.contains(&head)) && texts(kernel).any(|text| text.contains(&size))
            }
            (_, None) => false,
        }
    }

    #[test]
    fn every_source_defines_its_entry_with_the_arguments_listed() {
        for kernel in sources() {
            assert!(kernel.source.contains("extern \"C\" __global__"), "{}", kernel.entry);
            let parameters = parameters(kernel);
            assert_eq!(parameters.len(), kernel.arguments.len(), "{}", kernel.entry);
            for (parameter, argument) in parameters.iter().zip(kernel.arguments) {
                let name = parameter.rsplit([' ', '*']).next();
                assert_eq!(name, Some(argument.name), "{}: {parameter}", kernel.entry);
                assert!(agrees(kernel, parameter, argument.kind), "{}: {parameter}", kernel.entry);
            }
        }
    }

    /// The compile script reads the first line of the file, the program the list: they must agree.
    #[test]
    fn architectures_agree_with_the_first_line() {
        for kernel in sources() {
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
        let mut listed: Vec<&str> = sources().map(|kernel| kernel.entry).collect();
        listed.sort_unstable();
        assert_eq!(files, listed);
        for kernel in sources() {
            for line in texts(kernel).flat_map(str::lines).filter(|line| line.starts_with("#include")) {
                let name = line.split('"').nth(1).expect("a quoted name: no toolkit headers");
                assert!(kernel.headers.iter().any(|header| header.name == name), "{}: {name}", kernel.entry);
            }
        }
    }

    #[test]
    fn each_list_is_sorted() {
        assert!(casts::CASTS.is_sorted_by_key(|kernel| kernel.entry));
        assert!(gemm::GEMMS.is_sorted_by_key(|kernel| kernel.entry));
        assert!(gemm::BLOCKS.is_sorted_by_key(|kernel| kernel.entry));
        assert!(gemm::STATIC_GEMMS.is_sorted_by_key(|kernel| kernel.entry));
        assert!(norms::NORMS.is_sorted_by_key(|kernel| kernel.entry));
        assert!(probing::PROBING.is_sorted_by_key(|kernel| kernel.entry));
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
