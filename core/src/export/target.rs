//! The targets by name, with the packages that each was proved with.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A framework and the form in which it reads a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Torchao,
    TorchaoInference,
    Te,
    Megatron,
    Nvdlfw,
    Modelopt,
    CompressedTensors,
    Quark,
    Hf,
    ModelExplorer,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown target '{0}' ({list})", list = Target::ALL.map(Target::as_str).join(", "))]
pub struct UnknownTarget(pub String);

impl Target {
    pub const ALL: [Self; 10] = [
        Self::Torchao,
        Self::TorchaoInference,
        Self::Te,
        Self::Megatron,
        Self::Nvdlfw,
        Self::Modelopt,
        Self::CompressedTensors,
        Self::Quark,
        Self::Hf,
        Self::ModelExplorer,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Torchao => "torchao",
            Self::TorchaoInference => "torchao-inference",
            Self::Te => "te",
            Self::Megatron => "megatron",
            Self::Nvdlfw => "nvdlfw",
            Self::Modelopt => "modelopt",
            Self::CompressedTensors => "compressed-tensors",
            Self::Quark => "quark",
            Self::Hf => "hf",
            Self::ModelExplorer => "model-explorer",
        }
    }

    /// As its makers write it, for a list that people choose from.
    pub fn title(self) -> &'static str {
        match self {
            Self::Torchao => "torchao",
            Self::TorchaoInference => "torchao inference",
            Self::Te => "Transformer Engine",
            Self::Megatron => "Megatron",
            Self::Nvdlfw => "nvdlfw-inspect",
            Self::Modelopt => "ModelOpt",
            Self::CompressedTensors => "compressed-tensors",
            Self::Quark => "Quark",
            Self::Hf => "Transformers (Hugging Face)",
            Self::ModelExplorer => "Model Explorer",
        }
    }

    /// How the file's name ends, without a dot in front: no two targets have the same, so that they lie side by side.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Torchao => "torchao.py",
            Self::TorchaoInference => "torchao-inference.json",
            Self::Te => "te.py",
            Self::Megatron => "megatron.yaml",
            Self::Nvdlfw => "nvdlfw.yaml",
            Self::Modelopt => "modelopt.yaml",
            Self::CompressedTensors => "compressed-tensors.json",
            Self::Quark => "quark.json",
            Self::Hf => "hf.json",
            Self::ModelExplorer => "model-explorer.json",
        }
    }

    /// The package and the version whose rules are re-implemented here. Formats change within a year or two.
    pub fn proved_with(self) -> &'static str {
        match self {
            Self::Torchao | Self::TorchaoInference => "torchao 0.18.0",
            Self::Te => "transformer-engine, source of 2026-08, never run",
            Self::Megatron => "megatron-core 0.16.1",
            Self::Nvdlfw => "nvdlfw-inspect 0.2.2",
            Self::Modelopt => "nvidia-modelopt 0.47.0 (the list form needs 0.44)",
            Self::CompressedTensors => "compressed-tensors 0.20.0",
            Self::Quark => "amd-quark 0.13",
            Self::Hf => "transformers 5.23.0",
            Self::ModelExplorer => "ai-edge-model-explorer 0.1.34",
        }
    }

    /// What is written, for a list of targets.
    pub fn about(self) -> &'static str {
        match self {
            Self::Torchao => "training: a Python file, apply(model) converts the linears",
            Self::TorchaoInference => "inference: FqnToConfig, JSON",
            Self::Te => "training: a Python file with a CustomRecipe, a choice a GEMM",
            Self::Megatron => "training: --te-precision-config-file, YAML",
            Self::Nvdlfw => "training: features of nvdlfw_inspect that turn FP8 off, YAML",
            Self::Modelopt => "inference: a PTQ recipe, YAML",
            Self::CompressedTensors => "inference: a quantization_config with groups, JSON",
            Self::Quark => "inference: a QConfig, JSON",
            Self::Hf => "inference: a quantization_config of fine-grained FP8, JSON",
            Self::ModelExplorer => "looking: errors as node data, JSON, and one file more a GEMM",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        Self::ALL.into_iter().find(|target| target.as_str() == text).ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_written_and_read_by_its_own_name() {
        for target in Target::ALL {
            assert_eq!(serde_json::to_value(target).unwrap(), target.as_str());
            assert_eq!(target.as_str().parse(), Ok(target));
            assert!(target.ending().starts_with(&format!("{target}.")), "{target}");
        }
    }
}
