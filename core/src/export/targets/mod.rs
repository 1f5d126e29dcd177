//! Takes a job, gives a target's files; takes a file's text, gives what its framework makes of each module. One
//! file a target; the second half never sees what the first one knew.

mod compressed_tensors;
mod hf;
mod inference;
mod megatron;
mod model_explorer;
mod modelopt;
mod nvdlfw;
mod python;
mod quark;
mod te;
mod torchao;
mod torchao_inference;

use super::{
    Module, Refusal, Target,
    job::{Job, Written},
    resolution::Resolved,
};

pub struct Format {
    pub write: fn(&Job<'_>) -> Result<Written, Refusal>,
    /// What each module becomes, by the text alone.
    pub resolve: fn(&str, &[Module]) -> Resolved,
}

pub fn format(target: Target) -> Format {
    match target {
        Target::Torchao => Format { write: torchao::write, resolve: torchao::resolve },
        Target::TorchaoInference => Format { write: torchao_inference::write, resolve: torchao_inference::resolve },
        Target::Te => Format { write: te::write, resolve: te::resolve },
        Target::Megatron => Format { write: megatron::write, resolve: megatron::resolve },
        Target::Nvdlfw => Format { write: nvdlfw::write, resolve: nvdlfw::resolve },
        Target::Modelopt => Format { write: modelopt::write, resolve: modelopt::resolve },
        Target::CompressedTensors => Format { write: compressed_tensors::write, resolve: compressed_tensors::resolve },
        Target::Quark => Format { write: quark::write, resolve: quark::resolve },
        Target::Hf => Format { write: hf::write, resolve: hf::resolve },
        Target::ModelExplorer => Format { write: model_explorer::write, resolve: model_explorer::resolve },
    }
}
