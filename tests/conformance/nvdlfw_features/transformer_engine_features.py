"""The two features of Transformer Engine that an exported file may name, for nvdlfw_inspect to route to.

Transformer Engine registers its own, and needs CUDA to be imported. These answer the same call, `fp8_gemm_enabled`, by
the same rule: who is asked turns the GEMM off; the default leaves it on. Loading, matching and routing are nvdlfw_inspect's.
"""

from nvdlfw_inspect.base import BaseConfigAPIMapper, BaseNamespaceAPI
from nvdlfw_inspect.registry import Registry, api_method

GEMMS = ("fprop", "dgrad", "wgrad")


class Default:
    def fp8_gemm_enabled(self, config, layer_name, gemm):
        return True


@Registry.register_namespace_api(namespace="transformer_engine")
class Namespace(BaseNamespaceAPI):
    def __init__(self):
        super().__init__()
        self._default_api_impl = Default()
        self._cacheable_api_kwargs_map = {"fp8_gemm_enabled": ["gemm"]}

    def input_assertions_hook(self, api_name, **kwargs):
        assert kwargs["gemm"] in GEMMS

    def output_assertions_hook(self, api_name, ret, **kwargs):
        assert isinstance(ret, bool)

    def routing_condition(self, api_name, config, layer_name, feature_obj, **kwargs):
        return feature_obj.parse_config_and_api(config, **kwargs)

    def is_multiple_feature_invocation_allowed(self, api_name):
        return False


class Off(BaseConfigAPIMapper):
    @api_method
    def fp8_gemm_enabled(self, config, layer_name, gemm):
        return False


@Registry.register_feature(namespace="transformer_engine")
class DisableQuantizationGEMM(Off):
    def parse_config_and_api(self, config, **kwargs):
        assert set(config) == {"enabled", "gemms"}, config
        assert set(config["gemms"]) <= set(GEMMS), config
        return kwargs["gemm"] in config["gemms"], {"gemm": kwargs["gemm"]}


@Registry.register_feature(namespace="transformer_engine")
class DisableQuantizationLayer(Off):
    def parse_config_and_api(self, config, **kwargs):
        assert set(config) == {"enabled"}, config
        return True, None
