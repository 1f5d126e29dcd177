"""Model Explorer: the node data read as its own types, and put into a configuration of it."""

import dataclasses
import json
import unittest

import support
import toy
from plans import HIGH, rotated, whole

import model_explorer
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult, ThresholdItem


def fields_of(kind):
    return {field.name for field in dataclasses.fields(kind)}


class NodeData(support.Conformance):
    target = "model-explorer"
    file = "nodes.json"

    def test_every_linear_of_the_plan_is_a_node(self):
        chosen = rotated(toy.PLANNED, [HIGH, whole("te/current")])
        path = self.export(chosen)
        graphs = json.loads(path.read_text(encoding="utf-8"))
        nodes = set()
        for graph in graphs.values():
            self.assertLessEqual(set(graph), fields_of(GraphNodeData))
            for key, kind in (("gradient", GradientItem), ("thresholds", ThresholdItem)):
                for item in graph.get(key, []):
                    kind(**item)
            for name, result in graph["results"].items():
                self.assertIsInstance(NodeDataResult(**result).value, (int, float, str))
                nodes.add(name)
        self.assertEqual(nodes, {name.replace(".", "/") for name in toy.PLANNED})

    def test_its_configuration_takes_the_file(self):
        path = self.export(rotated(toy.PLANNED, [HIGH, whole("te/current")]))
        config = model_explorer.config()
        config.add_node_data_from_path(str(path))
        self.assertIn(path.name, json.dumps(config.node_data_sources))


if __name__ == "__main__":
    unittest.main()
