"""`fusion`: FusionRAG (arXiv 2601.12904). Blocks computed after their neighbours, tokens chosen by the question.

The offline stage (§4.1) is a block's context, not a plan: see `Strategy.near`. The online stage (§4.2) is
selection/query_guided.py. Without the offline stage and at ratio 0 it is `reuse`.
"""

from models.selection import Selector, query_guided
from models.strategies.base import SelectingStrategy


class FusionStrategy(SelectingStrategy):
    name = "fusion"
    near = True

    def selector(self) -> Selector:
        return query_guided(self.options.select, self.options.ratio)
