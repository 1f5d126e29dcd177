"""Model Explorer: the node data read as its own types, and put into a configuration of it."""

import dataclasses
import json
import unittest

import support
import toy
from plans import ERROR, HIGH, LOSSY, rotated, whole

import model_explorer
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult, ThresholdItem


def fields_of(kind):
    return {field.name for field in dataclasses.fields(kind)}


class NodeData(support.Target, unittest.TestCase):
    """Nothing is applied: each linear of the plan is a node with a number."""

    target = "model-explorer"
    file = "nodes.json"
    skipped = "the page in a browser"
    choices = [HIGH, whole("te/current")]

    def became(self, path, model):
        model_explorer.config().add_node_data_from_path(str(path))
        found = {}
        for graph in json.loads(path.read_text(encoding="utf-8")).values():
            self.assertLessEqual(set(graph), fields_of(GraphNodeData))
            for key, kind in (("gradient", GradientItem), ("thresholds", ThresholdItem)):
                for item in graph.get(key, []):
                    kind(**item)
            found.update({node: NodeDataResult(**result).value for node, result in graph["results"].items()})
        return found

    def wanted(self, model, chosen, of):
        return {name.replace(".", "/"): ERROR for name in chosen}

    def test_what_is_lost_is_told_and_becomes_no_coarser(self):
        """It has errors and no kernels, and loses none."""
        self.export(rotated(toy.PLANNED, LOSSY))


if __name__ == "__main__":
    unittest.main()
