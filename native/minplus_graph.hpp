// c-transforms with shortest-path costs: one run of Dijkstra's algorithm with the potentials as starting values.
//
//     min_j (d(i, j) + h_j)
//
// is the distance from i to the nearest of all j, each of which starts with h_j; the run begins there and follows the links
// backwards. Sums are rounded along each path from its start, and rounded addition is monotone, so that the result does
// not depend on the order in which nodes are settled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.hpp"

namespace gibbsot {

// The links that leave each node.
template <class T>
struct Adjacency {
    const std::int64_t* starts;  // one more than there are nodes
    const std::int32_t* heads;
    const T* lengths;
    std::size_t nodes;
};

// A cost between rows and columns that lie at the nodes of a graph, as a source of DenseOperator. Its transforms have
// overloads below. It has space for one run, so that each thread needs its own.
template <class T>
class GraphMatrix {
public:
    using value_type = T;
    using Node = std::int32_t;

    std::size_t stride;  // of the rows, padded

    GraphMatrix(Adjacency<T> given, Adjacency<T> reversed, const Node* rows, std::size_t n_rows, const Node* columns)
        : stride(padded<T>(n_rows)), given_(given), reversed_(reversed), rows_(rows), n_rows_(n_rows), columns_(columns),
          least_(given.nodes), fresh_(given.nodes) {}

    void to_rows(const std::uint32_t* columns, std::size_t n, const T* h, T* out) const {
        clear();
        for (std::size_t k = 0; k < n; ++k) begin(columns_[columns[k]], h[k]);
        run(reversed_);
        for (std::size_t i = 0; i < n_rows_; ++i) out[i] = least_[static_cast<std::size_t>(rows_[i])];
        std::fill(out + n_rows_, out + stride, kInf<T>);
    }
    void to_columns(const std::uint32_t* columns, std::size_t n, const T* x, T* out) const {
        clear();
        for (std::size_t i = 0; i < n_rows_; ++i) begin(rows_[i], x[i]);
        run(given_);
        for (std::size_t k = 0; k < n; ++k) out[k] = least_[static_cast<std::size_t>(columns_[columns[k]])];
    }

private:
    struct Label {
        T value;
        Node node;
        bool operator<(const Label& other) const { return value > other.value; }  // the least on top of the heap
    };

    static constexpr int kSweeps = 4;

    void clear() const {
        std::fill(least_.begin(), least_.end(), kInf<T>);
        std::fill(fresh_.begin(), fresh_.end(), 0);
    }
    void begin(Node v, T value) const {
        if (!(value < least_[static_cast<std::size_t>(v)])) return;
        least_[static_cast<std::size_t>(v)] = value;
        fresh_[static_cast<std::size_t>(v)] = 1;
    }
    // Potentials of the sampler differ from the result in few places, by few links: some passes over the nodes, which lower
    // the ends of the links of nodes that are fresh, leave little to Dijkstra's algorithm.
    void run(const Adjacency<T>& graph) const {
        for (int sweep = 0; sweep < kSweeps; ++sweep)
            for (std::size_t t = 0; t < graph.nodes; ++t) {
                const std::size_t v = sweep % 2 == 0 ? t : graph.nodes - 1 - t;
                if (!fresh_[v]) continue;
                fresh_[v] = 0;
                for (std::int64_t k = graph.starts[v]; k < graph.starts[v + 1]; ++k) {
                    const auto head = static_cast<std::size_t>(graph.heads[k]);
                    const T value = least_[v] + graph.lengths[k];
                    if (!(value < least_[head])) continue;
                    least_[head] = value;
                    fresh_[head] = 1;
                }
            }
        heap_.clear();
        for (std::size_t v = 0; v < graph.nodes; ++v)
            if (fresh_[v]) heap_.push_back({least_[v], static_cast<Node>(v)});
        std::make_heap(heap_.begin(), heap_.end());
        while (!heap_.empty()) {
            std::pop_heap(heap_.begin(), heap_.end());
            const Label label = heap_.back();
            heap_.pop_back();
            const auto v = static_cast<std::size_t>(label.node);
            if (label.value > least_[v]) continue;
            for (std::int64_t k = graph.starts[v]; k < graph.starts[v + 1]; ++k) {
                const T value = label.value + graph.lengths[k];
                T& least = least_[static_cast<std::size_t>(graph.heads[k])];
                if (!(value < least)) continue;
                least = value;
                heap_.push_back({value, graph.heads[k]});
                std::push_heap(heap_.begin(), heap_.end());
            }
        }
    }

    Adjacency<T> given_, reversed_;
    const Node* rows_;
    std::size_t n_rows_;
    const Node* columns_;
    mutable std::vector<T> least_;
    mutable std::vector<char> fresh_;  // lowered since its links were last followed
    mutable std::vector<Label> heap_;
};

template <class T>
void dense_columns(const GraphMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least) {
    M.to_columns(columns, n, x, least);
}
template <class T>
void dense_rows(const GraphMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* y, T* out) {
    M.to_rows(columns, n, y, out);
}
template <class T, class Between>
void dense_both(const GraphMatrix<T>& M, const std::uint32_t* columns, std::size_t n, const T* x, T* least, const T* y,
                T* out, Between between) {
    M.to_columns(columns, n, x, least);
    between(0, n);
    M.to_rows(columns, n, y, out);
}

// Distances from nodes to others: a run from each source ends once its targets are settled, so that near ones cost little.
// Pairs of the same source follow one another.
template <class T>
void pair_distances(const Adjacency<T>& graph, const std::int64_t* source, const std::int64_t* target, std::size_t pairs,
                    T* distance) {
    struct Label {
        T value;
        std::int32_t node;
        bool operator<(const Label& other) const { return value > other.value; }
    };
    std::vector<Label> heap;
    std::vector<T> least(graph.nodes, kInf<T>);
    std::vector<char> wanted(graph.nodes, 0);
    std::vector<std::size_t> reached;
    for (std::size_t first = 0, last = 0; first < pairs; first = last) {
        std::size_t left = 0;
        for (last = first; last < pairs && source[last] == source[first]; ++last) {
            char& mark = wanted[static_cast<std::size_t>(target[last])];
            left += mark == 0;
            mark = 1;
        }
        const auto root = static_cast<std::size_t>(source[first]);
        least[root] = 0;
        reached.assign(1, root);
        heap.assign(1, {T(0), static_cast<std::int32_t>(root)});
        while (!heap.empty()) {
            std::pop_heap(heap.begin(), heap.end());
            const Label label = heap.back();
            heap.pop_back();
            const auto v = static_cast<std::size_t>(label.node);
            if (label.value > least[v]) continue;
            if (wanted[v]) {
                wanted[v] = 0;
                if (--left == 0) break;
            }
            for (std::int64_t k = graph.starts[v]; k < graph.starts[v + 1]; ++k) {
                const auto head = static_cast<std::size_t>(graph.heads[k]);
                const T value = label.value + graph.lengths[k];
                if (!(value < least[head])) continue;
                if (least[head] == kInf<T>) reached.push_back(head);
                least[head] = value;
                heap.push_back({value, graph.heads[k]});
                std::push_heap(heap.begin(), heap.end());
            }
        }
        for (std::size_t k = first; k < last; ++k) {
            const auto end = static_cast<std::size_t>(target[k]);
            distance[k] = least[end];
            wanted[end] = 0;
        }
        for (const std::size_t v : reached) least[v] = kInf<T>;
    }
}

// The k least sums of distances and starting values at each node, and the sources that they come from: labels are settled
// in the order of their values, at most k at each node and one for each source. -1 and infinity where there are fewer.
template <class T>
void nearest_sources(const Adjacency<T>& graph, const std::int32_t* source_node, const T* x, std::size_t sources,
                     std::size_t k, std::int32_t* source, T* sum) {
    struct Label {
        T value;
        std::int32_t node, source;
        bool operator<(const Label& other) const {
            return value > other.value || (value == other.value && source > other.source);
        }
    };
    std::vector<Label> heap;
    std::vector<std::size_t> count(graph.nodes);
    std::fill(source, source + graph.nodes * k, -1);
    std::fill(sum, sum + graph.nodes * k, kInf<T>);
    for (std::size_t j = 0; j < sources; ++j)
        if (x[j] < kInf<T>) heap.push_back({x[j], source_node[j], static_cast<std::int32_t>(j)});
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end());
        const Label label = heap.back();
        heap.pop_back();
        const auto v = static_cast<std::size_t>(label.node);
        std::int32_t* own = source + v * k;
        if (count[v] == k || std::find(own, own + count[v], label.source) != own + count[v]) continue;
        own[count[v]] = label.source;
        sum[v * k + count[v]++] = label.value;
        for (std::int64_t l = graph.starts[v]; l < graph.starts[v + 1]; ++l) {
            if (count[static_cast<std::size_t>(graph.heads[l])] == k) continue;
            heap.push_back({label.value + graph.lengths[l], graph.heads[l], label.source});
            std::push_heap(heap.begin(), heap.end());
        }
    }
}

}  // namespace gibbsot
