"""A model as ONNX graphs, written operation by operation: the functions of `modeling/`, under their names.

Written out, and not traced, so that every length may change from call to call, one graph serves a prompt and the steps
after it, and the operations are those that runtimes know how to join.

Shapes: B batch, S source length, T new tokens, P tokens before them in the cache, L = P + T, E hidden size, H heads,
G key-value heads, D head width, V vocabulary.
"""

import math
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from transformers import PreTrainedModel

from ...modeling.attention import MultiHeadAttention
from ...modeling.positions import alibi_slopes
from ...modeling.stack import TransformerStack

OPSET = 20
"""The first with GELU; runtimes of 2024 have it."""

HIDDEN_SCORE = -1e30
"""Added to the score of what must not be seen."""


class Graph:
    """A graph that grows by one operation at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.names: dict[tuple[int, ...], str] = {}

    def input(self, name: str, shape: list[str | int], kind: int = TensorProto.INT64) -> str:
        """What the graph is given; words in the shape stand for lengths that may change."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: list[str | int]) -> None:
        """What the graph gives, in float32."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def __call__(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """One more operation with one result."""
        result = f"{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [result], **attributes))
        return result

    def split(self, value: str, count: int) -> list[str]:
        """Equal parts of the last axis."""
        results = [f"Split_{len(self.nodes)}_{part}" for part in range(count)]
        self.nodes.append(helper.make_node("Split", [value], results, axis=-1, num_outputs=count))
        return results

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A number, or an array of them."""
        name = f"constant_{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        return name

    def integers(self, *values: int) -> str:
        """A vector of whole numbers."""
        return self.constant(values, np.int64)

    def weight(self, tensor: torch.Tensor, name: str, *, transposed: bool = False) -> str:
        """A tensor of the model; one that is there already is not stored twice."""
        key = (tensor.data_ptr(), *tensor.shape, int(transposed))
        if key not in self.names:
            values = tensor.detach().float()
            values = values.T if transposed else values
            self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(values.numpy()), name)
            self.names[key] = name
        return self.names[key]

    def length(self, value: str, axis: int) -> str:
        """Of an axis, as a vector of one number."""
        return self("Shape", value, start=axis, end=axis + 1)

    def model(self) -> onnx.ModelProto:
        """The graph as a model, checked."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, list(self.weights.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="paperformer")


def build_graphs(model: PreTrainedModel) -> dict[str, onnx.ModelProto]:
    """The graphs of a model by their names.

    encoder-decoder: `encoder` gives the keys and values of every cross-attention, `decoder` the logits; language model:
    `decoder`; encoder: `encoder` with the states of the tokens and the logits of masked ones.
    """
    config: Any = model.config
    body: Any = model.model
    if config.is_encoder_decoder:
        return {"encoder": _source_graph(body), "decoder": _decoder_graph(body.decoder, model.lm_head)}
    if config.model_type == "paperformer-lm":
        return {"decoder": _decoder_graph(body, model.lm_head)}
    return {"encoder": _masked_graph(model)}


def _source_graph(body: Any) -> onnx.ModelProto:
    """Source ids (B, S) and their mask -> keys and values of each decoder block's cross-attention, (B, G, S, D)."""
    g = Graph("encoder")
    ids, mask = g.input("input_ids", ["B", "S"]), g.input("attention_mask", ["B", "S"])
    states = Stack(g, body.encoder, "encoder").run(ids, mask)
    for index, layer in enumerate(body.decoder.layers):
        attention = layer.cross_attn
        shape: list[str | int] = ["B", attention.config.num_key_value_heads, "S", attention.head_dim]
        for kind in ("key", "value"):
            value = _heads(g, attention, states, kind, f"decoder.{index}.cross_attn")
            g.output(value, f"cross.{index}.{kind}", shape)
    return g.model()


def _masked_graph(model: Any) -> onnx.ModelProto:
    """Ids (B, S), their mask and their segments -> states (B, S, E) and logits (B, S, V)."""
    g, body = Graph("encoder"), model.model
    ids, mask = g.input("input_ids", ["B", "S"]), g.input("attention_mask", ["B", "S"])
    types = None if body.embed_token_types is None else g.input("token_type_ids", ["B", "S"])
    states = Stack(g, body, "encoder").run(ids, mask, types=types)
    g.output(states, "last_hidden_state", ["B", "S", body.config.hidden_size])
    inner = _act(g, body.config.hidden_act, _linear(g, model.transform.dense, states, "transform.dense"))
    inner = _norm(g, model.transform.norm, inner, "transform.norm")
    g.output(_project(g, model.lm_head, inner), "logits", ["B", "S", body.config.vocab_size])
    return g.model()


def _decoder_graph(stack: Any, head: nn.Linear) -> onnx.ModelProto:
    """New ids (B, T), the mask of all so far (B, L) and the caches -> logits (B, T, V) and the caches with the new."""
    g, config = Graph("decoder"), stack.config
    ids, mask = g.input("input_ids", ["B", "T"]), g.input("attention_mask", ["B", "L"])
    cache_shape: list[str | int] = ["B", config.num_key_value_heads, "P", config.head_dim]
    has_source = stack.layers[0].has_cross_attention
    source_mask = g.input("encoder_attention_mask", ["sources", "S"]) if has_source else None
    caches = []
    for index in range(len(stack.layers)):
        names = [f"past.{index}.{kind}" for kind in ("key", "value")]
        cache = [g.input(name, cache_shape, TensorProto.FLOAT) for name in names]
        if has_source:  # of one sentence for all its beams, or of each row
            shape: list[str | int] = ["sources", config.num_key_value_heads, "S", config.head_dim]
            names = [f"cross.{index}.{kind}" for kind in ("key", "value")]
            cache += [g.input(name, shape, TensorProto.FLOAT) for name in names]
        caches.append(cache)
    states = Stack(g, stack, "decoder").run(ids, mask, caches=caches, source_mask=source_mask)
    g.output(_project(g, head, states), "logits", ["B", "T", config.vocab_size])
    return g.model()


class Stack:
    """Writes a stack of blocks, with its embeddings and its positions, into a graph.

    Args:
        g: the graph.
        stack: ours.
        name: before the names of its weights.
    """

    def __init__(self, g: Graph, stack: TransformerStack, name: str) -> None:
        self.g, self.stack, self.name = g, stack, name
        self.config: Any = stack.config
        self.positions: Any = stack.positions

    def run(
        self,
        ids: str,
        mask: str,
        *,
        types: str | None = None,
        caches: list[list[str]] | None = None,
        source_mask: str | None = None,
    ) -> str:
        """The states of the new tokens, (B, T, E); with caches the stack only looks back."""
        g, config, layers = self.g, self.config, list(self.stack.layers)
        self.is_causal = caches is not None
        self._place(ids, mask)
        x = g("Gather", g.weight(self.stack.embed_tokens.weight, f"{self.name}.embed_tokens"), ids)
        if config.scale_embedding:
            x = g("Mul", x, g.constant(self.stack.embed_scale))
        if types is not None:
            x = g("Add", x, g("Gather", g.weight(self.stack.embed_token_types.weight, "token_types"), types))  # type: ignore[union-attr,arg-type]
        x = self._add_positions(x)
        if config.embedding_norm:
            x = _norm(g, self.stack.embed_norm, x, f"{self.name}.embed_norm")
        bias, rotation = self._scores_bias(mask), self._rotation()
        source_bias = None if source_mask is None else self._padding_bias(source_mask)
        for index, layer in enumerate(layers):
            cache = None if caches is None else caches[index]
            x = self._block(layer, index, x, bias, rotation, cache, source_bias)
        if config.norm_position != "post":
            x = _norm(g, self.stack.norm, x, f"{self.name}.norm")
        return x

    def _place(self, ids: str, mask: str) -> None:
        """Positions, counted without padding, and places, of the new tokens and of all keys."""
        g = self.g
        zero, one = g.constant(0, np.int64), g.constant(1, np.int64)
        total, new = g.length(mask, 1), g.length(ids, 1)
        before = g("Sub", total, new)
        counted = g("Sub", g("CumSum", mask, g.constant(1, np.int64)), one)
        self.key_positions = g("Max", counted, zero)  # (B, L)
        self.query_positions = g("Slice", self.key_positions, before, total, g.integers(1))  # (B, T)
        places = g("Range", zero, g("Squeeze", total), one)  # (L,)
        self.key_places = places
        self.query_places = g("Unsqueeze", g("Slice", places, before, total), g.integers(1))  # (T, 1)

    def _add_positions(self, x: str) -> str:
        g, scheme = self.g, self.config.position_embedding_type
        if scheme == "learned":
            return g(
                "Add",
                x,
                g("Gather", g.weight(self.positions.table.weight, f"{self.name}.positions"), self.query_positions),
            )
        if scheme != "sinusoidal":
            return x
        width = self.config.hidden_size
        periods = 10_000.0 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = g("Div", self._floats(self.query_positions), g.constant(periods.numpy()))  # (B, T, E/2)
        waves = [g("Unsqueeze", g(wave, angles), g.integers(-1)) for wave in ("Sin", "Cos")]
        return g("Add", x, g("Reshape", g("Concat", *waves, axis=-1), g.integers(0, 0, width)))

    def _rotation(self) -> tuple[str, str] | None:
        """Cosines and sines of RoPE, (B, 1, T, D)."""
        if self.config.positions_enter != "rotation":
            return None
        g = self.g
        angles = g("Mul", self._floats(self.query_positions), g.constant(self.positions.inv_freq.numpy()))
        angles = g("Unsqueeze", g("Concat", angles, angles, axis=-1), g.integers(1))
        scale = g.constant(self.positions.attention_scaling)
        return g("Mul", g("Cos", angles), scale), g("Mul", g("Sin", angles), scale)

    def _floats(self, positions: str) -> str:
        """(B, T) -> (B, T, 1)."""
        return self.g("Cast", self.g("Unsqueeze", positions, self.g.integers(-1)), to=TensorProto.FLOAT)

    def _padding_bias(self, mask: str) -> str:
        """(B, S) -> (B, 1, 1, S)."""
        g = self.g
        hidden = g("Equal", g("Unsqueeze", mask, g.integers(1, 2)), g.constant(0, np.int64))
        return g("Where", hidden, g.constant(HIDDEN_SCORE), g.constant(0.0))

    def _scores_bias(self, mask: str) -> str:
        """What is added to the scores of self-attention, (B, 1 or H, 1 or T, L)."""
        g, config = self.g, self.config
        bias = self._padding_bias(mask)
        distances = g("Sub", self.query_places, self.key_places)  # (T, L)
        hidden = []
        if self.is_causal:
            hidden.append(g("Less", distances, g.constant(0, np.int64)))
        seen = []
        if config.attention_window is not None:
            seen.append(g("Less", g("Abs", distances), g.constant(config.attention_window, np.int64)))
        if config.attention_stride is not None:
            rest = g("Mod", distances, g.constant(config.attention_stride, np.int64))
            seen.append(g("Equal", rest, g.constant(0, np.int64)))
        if seen:
            hidden.append(g("Not", seen[0] if len(seen) == 1 else g("Or", *seen)))
        for where in hidden:
            bias = g("Where", where, g.constant(HIDDEN_SCORE), bias)
        if config.has_position_bias:
            bias = g("Add", bias, self._position_bias())
        return bias

    def _position_bias(self) -> str:
        """(B, H, T, L)."""
        g, config = self.g, self.config
        queries = g("Unsqueeze", self.query_positions, g.integers(2))
        distances = g("Sub", g("Unsqueeze", self.key_positions, g.integers(1)), queries)  # (B, T, L)
        if config.position_embedding_type == "alibi":
            slopes = alibi_slopes(config.num_attention_heads)[:, None, None]
            far = g("Cast", g("Unsqueeze", g("Abs", distances), g.integers(1)), to=TensorProto.FLOAT)
            return g("Mul", g.constant(-slopes.numpy()), far)
        zero, one = g.constant(0, np.int64), g.constant(1, np.int64)
        buckets = self.positions.table.num_embeddings // (1 if self.is_causal else 2)
        away = g("Neg", g("Min", distances, zero)) if self.is_causal else g("Abs", distances)
        exact = buckets // 2
        floats = g("Cast", g("Max", away, one), to=TensorProto.FLOAT)
        growth = g(
            "Div",
            g("Log", g("Div", floats, g.constant(exact))),
            g.constant(math.log(self.positions.max_distance / exact)),
        )
        growth = g("Cast", g("Mul", growth, g.constant(buckets - exact)), to=TensorProto.INT64)
        far = g("Min", g("Add", growth, g.constant(exact, np.int64)), g.constant(buckets - 1, np.int64))
        bucket = g("Where", g("Less", away, g.constant(exact, np.int64)), away, far)
        if not self.is_causal:
            ahead = g("Cast", g("Greater", distances, zero), to=TensorProto.INT64)
            bucket = g("Add", bucket, g("Mul", ahead, g.constant(buckets, np.int64)))
        table = g.weight(self.positions.table.weight, f"{self.name}.positions")
        return g("Transpose", g("Gather", table, bucket), perm=[0, 3, 1, 2])

    def _block(
        self,
        layer: Any,
        index: int,
        x: str,
        bias: str,
        rotation: tuple[str, str] | None,
        cache: list[str] | None,
        source_bias: str | None,
    ) -> str:
        g, name = self.g, f"{self.name}.{index}"

        def self_attention(inner: str) -> str:
            parts = {
                kind: _heads(g, layer.self_attn, inner, kind, f"{name}.self_attn") for kind in ("query", "key", "value")
            }
            if rotation is not None:
                parts |= {kind: _rotate(g, parts[kind], rotation) for kind in ("query", "key")}
            if cache is not None:
                shape: list[str | int] = ["B", self.config.num_key_value_heads, "L", self.config.head_dim]
                for past, kind in zip(cache[:2], ("key", "value"), strict=True):
                    parts[kind] = g("Concat", past, parts[kind], axis=2)
                    g.output(parts[kind], f"present.{index}.{kind}", shape)
            return _attend(g, layer.self_attn, parts["query"], parts["key"], parts["value"], bias, f"{name}.self_attn")

        def cross_attention(inner: str) -> str:
            assert cache is not None
            assert source_bias is not None
            query = _heads(g, layer.cross_attn, inner, "query", f"{name}.cross_attn")
            return _attend(g, layer.cross_attn, query, cache[2], cache[3], source_bias, f"{name}.cross_attn")

        def feed_forward(inner: str) -> str:
            up = _linear(g, layer.mlp.up_proj, inner, f"{name}.mlp.up")
            if layer.mlp.gate_proj is None:
                up = _act(g, self.config.hidden_act, up)
            else:
                gate = _linear(g, layer.mlp.gate_proj, inner, f"{name}.mlp.gate")
                up = g("Mul", _act(g, self.config.hidden_act, gate), up)
            return _linear(g, layer.mlp.down_proj, up, f"{name}.mlp.down")

        sub_layers = [("self_attn", self_attention), ("mlp", feed_forward)]
        if layer.has_cross_attention:
            sub_layers.insert(1, ("cross_attn", cross_attention))
        for kind, sub_layer in sub_layers:
            residual, where = getattr(layer, f"{kind}_residual"), f"{name}.{kind}"
            if self.config.norm_position == "post":
                x = _norm(g, residual.norm, g("Add", x, sub_layer(x)), f"{where}.norm")
                continue
            inner = sub_layer(_norm(g, residual.norm, x, f"{where}.norm"))
            if self.config.norm_position == "peri":
                inner = _norm(g, residual.output_norm, inner, f"{where}.output_norm")
            x = g("Add", x, inner)
        return x


def _linear(g: Graph, layer: Any, x: str, name: str) -> str:
    product = g("MatMul", x, g.weight(layer.weight, f"{name}.weight", transposed=True))
    return product if layer.bias is None else g("Add", product, g.weight(layer.bias, f"{name}.bias"))


def _project(g: Graph, head: Any, x: str) -> str:
    """Onto the vocabulary, by the embedding itself where it is tied."""
    name = g.names.get((head.weight.data_ptr(), *head.weight.shape, 0))
    if name is None:
        return _linear(g, head, x, "lm_head")
    product = g("MatMul", x, g("Transpose", name, perm=[1, 0]))
    return product if head.bias is None else g("Add", product, g.weight(head.bias, "lm_head.bias"))


def _norm(g: Graph, norm: Any, x: str, name: str) -> str:
    scale = g.weight(norm.weight, f"{name}.weight")
    if isinstance(norm, nn.LayerNorm):
        bias: Any = norm.bias
        shift = [] if bias is None else [g.weight(bias, f"{name}.bias")]
        return g("LayerNormalization", x, scale, *shift, axis=-1, epsilon=norm.eps)
    squares = g("ReduceMean", g("Mul", x, x), g.integers(-1), keepdims=1)
    return g("Mul", g("Div", x, g("Sqrt", g("Add", squares, g.constant(norm.eps)))), scale)


def _act(g: Graph, name: str, x: str) -> str:
    if name == "silu":
        return g("Mul", x, g("Sigmoid", x))
    if name in ("gelu", "gelu_new"):
        return g("Gelu", x, approximate="tanh" if name == "gelu_new" else "none")
    return g({"relu": "Relu", "sigmoid": "Sigmoid"}[name], x)


def _heads(g: Graph, attention: MultiHeadAttention, x: str, kind: str, name: str) -> str:
    """Queries, keys or values, head by head: (B, T, E) -> (B, H or G, T, D)."""
    projection = getattr(attention, f"{kind[0]}_proj")
    states = _linear(g, projection, x, f"{name}.{kind}")
    heads = projection.out_features // attention.head_dim
    states = g("Transpose", g("Reshape", states, g.integers(0, 0, heads, attention.head_dim)), perm=[0, 2, 1, 3])
    if kind != "value" and attention.config.qk_norm:
        states = _norm(g, getattr(attention, f"{kind[0]}_norm"), states, f"{name}.{kind}_norm")
    return states


def _rotate(g: Graph, heads: str, rotation: tuple[str, str]) -> str:
    first, second = g.split(heads, 2)
    turned = g("Concat", g("Neg", second), first, axis=-1)
    return g("Add", g("Mul", heads, rotation[0]), g("Mul", turned, rotation[1]))


def _attend(g: Graph, attention: MultiHeadAttention, query: str, key: str, value: str, bias: str, name: str) -> str:
    """Attention and its output projection, (B, T, E); each key-value head serves several query heads in turn."""
    config: Any = attention.config
    if (groups := attention.num_key_value_groups) > 1:
        key, value = (
            _repeat_heads(g, states, config.num_key_value_heads, groups, attention.head_dim) for states in (key, value)
        )
    if config.linear_attention:
        query, key = (g("Add", g("Elu", states), g.constant(1.0)) for states in (query, key))
        products = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
        products = g("Where", g("Less", bias, g.constant(0.0)), g.constant(0.0), products)
        total = g("ReduceSum", products, g.integers(-1), keepdims=1)
        weights = g("Div", products, g("Max", total, g.constant(1e-30)))  # 0 where there is nothing to see
    else:
        query = g("Mul", query, g.constant(attention.scaling))
        scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
        weights = g("Softmax", g("Add", scores, bias), axis=-1)
    joined = g("Transpose", g("MatMul", weights, value), perm=[0, 2, 1, 3])
    width = config.num_attention_heads * attention.head_dim
    return _linear(g, attention.o_proj, g("Reshape", joined, g.integers(0, 0, width)), f"{name}.output")


def _repeat_heads(g: Graph, states: str, heads: int, groups: int, width: int) -> str:
    """(B, G, S, D) -> (B, H, S, D)."""
    one_more = g("Unsqueeze", states, g.integers(2))
    repeated = g("Expand", one_more, g.integers(1, 1, groups, 1, 1))
    return g("Reshape", repeated, g.integers(0, heads * groups, -1, width))
