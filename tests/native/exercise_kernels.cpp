// Runs every kernel over random, odd and degenerate sizes, for the sanitizers: no read past an end, no undefined
// behaviour, no data race. Sizes and counts come from the command line only to make it a profiler's subject too.
//
//     exercise_kernels            all small cases
//     exercise_kernels paper N    N training steps, searches and scans at the paper's sizes
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "../../beamtree/native/src/adam.hpp"
#include "../../beamtree/native/src/batch_step.hpp"
#include "../../beamtree/native/src/counting.hpp"
#include "../../beamtree/native/src/relearn.hpp"
#include "../../beamtree/native/src/search.hpp"

using namespace beamtree;

namespace {

template <class T>
std::vector<T> random_values(std::mt19937& random, index_t count) {
    std::normal_distribution<T> normal(0, T(0.4));
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = normal(random);
    return values;
}

index_t below(std::mt19937& random, index_t bound) {
    return static_cast<index_t>(random() % static_cast<std::uint32_t>(bound));
}

template <class T>
std::unique_ptr<Network<T>> random_network(std::mt19937& random, const Sizes& sizes) {
    const index_t d = sizes.width, h = sizes.attention;
    const std::size_t layers = sizes.layers();
    std::vector<index_t> inputs{(sizes.num_windows() + 1) * d}, outputs(sizes.mlp);
    inputs.insert(inputs.end(), sizes.mlp.begin(), sizes.mlp.end());
    outputs.push_back(1);
    auto hidden = random_values<T>(random, h * 3 * d), bias = random_values<T>(random, h), v = random_values<T>(random, h);
    v[0] = 0;
    std::vector<std::vector<T>> weights, biases, gains, offsets;
    RawWeights<T> raw{};
    raw.hidden_weight = hidden.data();
    raw.hidden_bias = bias.data();
    raw.output_weight = v.data();
    raw.hidden_slope = T(0.25);
    raw.output_bias = T(0.1);
    raw.output_slope = T(0.2);
    for (std::size_t i = 0; i <= layers; ++i) {
        raw.mlp_weight.push_back(weights.emplace_back(random_values<T>(random, inputs[i] * outputs[i])).data());
        raw.mlp_bias.push_back(biases.emplace_back(random_values<T>(random, outputs[i])).data());
    }
    for (std::size_t i = 0; i < layers; ++i) {
        raw.mlp_slope.push_back(T(0.25));
        raw.norm_weight.push_back(gains.emplace_back(random_values<T>(random, outputs[i])).data());
        raw.norm_bias.push_back(offsets.emplace_back(random_values<T>(random, outputs[i])).data());
    }
    return std::make_unique<Network<T>>(sizes, raw);
}

struct Forest {
    std::vector<std::int32_t> item_at_leaf, leaf_of_item;
    std::unique_ptr<Tree> tree;
    std::vector<float> nodes, items;

    Forest(std::mt19937& random, index_t count, index_t vacant, index_t branching, index_t width) {
        item_at_leaf.assign(static_cast<std::size_t>(count + vacant), -1);
        for (index_t i = 0; i < count; ++i) item_at_leaf[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
        std::shuffle(item_at_leaf.begin(), item_at_leaf.end(), random);
        leaf_of_item.resize(static_cast<std::size_t>(count));
        for (std::size_t leaf = 0; leaf < item_at_leaf.size(); ++leaf)
            if (item_at_leaf[leaf] >= 0)
                leaf_of_item[static_cast<std::size_t>(item_at_leaf[leaf])] = static_cast<std::int32_t>(leaf);
        tree = std::make_unique<Tree>(branching, count + vacant, item_at_leaf.data(), leaf_of_item.data(), count);
        nodes = random_values<float>(random, tree->num_nodes() * width);
        items = random_values<float>(random, count * width);
    }
};

double checksum(const StepResult<float>& result) {
    double sum = result.loss;
    for (float value : result.nodes.values) sum += static_cast<double>(value) * 3;
    for (float value : result.items.values) sum += static_cast<double>(value) * 5;
    for (float value : result.layer_offsets) sum += static_cast<double>(value) * 7;
    return sum;
}

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

// What followed what in a random log, and a memory that reads it.
struct Remembered {
    Pairs<std::uint32_t> followers, company;
    std::vector<_Float16> strengths, weights;
    std::vector<float> returns;
    Memory memory;

    Remembered(std::mt19937& random, const Tree& tree) {
        const index_t items = tree.items;
        std::vector<std::int32_t> log;
        for (index_t i = 0; i < 40 * items; ++i) log.push_back(static_cast<std::int32_t>(below(random, items)));
        const std::int64_t starts[] = {0, 7, static_cast<std::int64_t>(log.size()) / 2};
        const std::int64_t ends[] = {7, static_cast<std::int64_t>(log.size()) / 2, static_cast<std::int64_t>(log.size())};
        followers = count_followers(Stretches{log.data(), starts, ends, 3}, Once{}, items, 20, 9);
        const std::vector<double> half(log.size(), 0.5);
        const auto halved = count_followers(Stretches{log.data(), starts, ends, 3}, Weighted{half.data()}, items, 20, 9);
        require(halved.items == followers.items, "weights of one half change no list");
        for (std::size_t pair = 0; pair < followers.counts.size(); ++pair)
            require(halved.counts[pair] == 0.5 * followers.counts[pair], "weights of one half give half of the counts");
        for (std::uint32_t count : followers.counts) strengths.push_back(static_cast<_Float16>(std::log1p(count)));
        std::vector<std::int32_t> once(static_cast<std::size_t>(items));
        std::iota(once.begin(), once.end(), 0);
        const std::int64_t begin[] = {0, 0}, until[] = {items, items / 2};
        const std::vector<double> norms(static_cast<std::size_t>(items), 1.5);
        company = count_company(Stretches{once.data(), begin, until, 2}, Once{}, norms.data(), items, 9);
        for (std::uint32_t count : company.counts) weights.push_back(static_cast<_Float16>(count));
        returns.assign(static_cast<std::size_t>(items), 1.5f);
        memory.links = {Links{followers.offsets.data(), followers.items.data(), strengths.data(), 1.0f, 0.8f, 20, false},
                        Links{company.offsets.data(), company.items.data(), weights.data(), 1.0f, 1.0f, 50, true}};
        memory.repeat_weight = 0.5f;
        memory.repeat_fade = 0.99f;
        memory.returns = returns.data();
        memory.popularity_weight = 0.1f;
        memory.popular_leaves.resize(static_cast<std::size_t>(items));
        std::copy(tree.leaf_of_item, tree.leaf_of_item + items, memory.popular_leaves.begin());
        memory.popularity.assign(static_cast<std::size_t>(tree.leaves), 1.0f);
        memory.gates.assign(static_cast<std::size_t>(tree.height) + 1, 1.0f);
    }
};

// Encoders of random weights.
struct RandomEncoders {
    std::vector<float> weights, recency;
    std::unique_ptr<SequenceEncoder> attentive, recurrent, compact;

    RandomEncoders(std::mt19937& random, index_t width, index_t heads, index_t layers, index_t history)
        : weights(random_values<float>(random, 12 * (width + 1) * (width + 1))),
          recency(random_values<float>(random, heads * history)) {
        const RawNorm norm{weights.data(), weights.data()};
        const RawLinear linear{weights.data(), weights.data()};
        const RawBlock block{norm, linear, recency.data(), linear, norm, linear, linear};
        const auto times = static_cast<std::size_t>(layers);
        attentive = std::make_unique<SequenceEncoder>(
            SelfAttention(SelfAttentionSizes{width, heads, history}, std::vector<RawBlock>(times, block), norm));
        auto make_recurrent = [&] {
            return std::make_unique<SequenceEncoder>(
                Recurrent(RecurrentSizes{width, 2 * width - 1, history}, norm,
                          std::vector<RawRecurrentLayer>(times, RawRecurrentLayer{linear, linear}), linear, norm));
        };
        recurrent = make_recurrent();
        for (float& number : weights) {  // to 16 bits, which the kernels keep in half the space
            std::uint32_t bits;
            std::memcpy(&bits, &number, sizeof bits);
            bits &= 0xffff0000;
            std::memcpy(&number, &bits, sizeof bits);
        }
        compact = make_recurrent();
    }
};

struct Case {
    Sizes sizes;
    index_t items, vacant, branching, instances, negatives, beam;
    bool separate;
    float dropout;
};

double run_case(std::mt19937& random, const Case& c, int repeats) {
    const index_t length = c.sizes.history();
    auto net = random_network<float>(random, c.sizes);
    Forest forest(random, c.items, c.vacant, c.branching, c.sizes.width);
    const Tree& tree = *forest.tree;
    const Table nodes{forest.nodes.data(), tree.num_nodes(), c.sizes.width, Storage::float32};
    const Table items{forest.items.data(), c.items, c.sizes.width, Storage::float32};
    const Attention<float> attention{*net, Tables{nodes, items, c.separate}};
    const Remembered remembered(random, tree);
    const RandomEncoders encoders(random, c.sizes.width, c.sizes.width % 3 == 0 ? 3 : 1, 2, length);
    const Tower tower{*encoders.attentive, forest.nodes.data(), 0.5f};
    const Tower recurrent_tower{*encoders.recurrent, forest.nodes.data(), 0.5f};
    const Tower compact_tower{*encoders.compact, forest.nodes.data(), 0.5f};
    std::vector<std::int32_t> histories(static_cast<std::size_t>(c.instances * length)), targets;
    for (auto& item : histories) item = static_cast<std::int32_t>(below(random, c.items + 1)) - 1;
    for (index_t k = 0; k < length; ++k) histories[static_cast<std::size_t>(k)] = -1;
    for (index_t i = 0; i < c.instances; ++i) targets.push_back(static_cast<std::int32_t>(below(random, c.items)));
    std::vector<std::int32_t> several;
    for (index_t i = 0; i < 3 * c.instances; ++i)
        several.push_back(static_cast<std::int32_t>(below(random, c.items + 1)) - 1);
    std::vector<float> weights(static_cast<std::size_t>(c.instances * tree.height), 1.0f);
    weights[0] = 0;
    const auto layer_offsets = random_values<float>(random, c.instances * c.sizes.mlp.front());
    const Batch batch{histories.data(), targets.data(), weights.data(), nullptr, c.instances, 1};
    const Batch shared{histories.data(), several.data(), nullptr, layer_offsets.data(), c.instances, 3};
    double total = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (PathStart start : {PathStart::level, PathStart::root, PathStart::every})
            for (Sampler sampler : {Sampler::uniform, Sampler::top_down}) {
                if (start != PathStart::level && repeats > 1) continue;
                Sampling sampling;
                sampling.sampler = sampler;
                sampling.start = start;
                sampling.with_dropout = start == PathStart::root;
                sampling.seed = static_cast<std::uint64_t>(repeat);
                sampling.negatives.assign(static_cast<std::size_t>(tree.height + 1), c.negatives);
                Batch told = batch;
                if (start == PathStart::level) told.layer_offsets = layer_offsets.data();
                const BatchStep lesson{attention, tree, told, sampling, Dropout{c.dropout, 3}};
                StepResult<float> step = step_on_batch(lesson);
                if (repeats == 1) {
                    const double parallel = checksum(step);
                    ThreadPool::shared().resize(1);
                    require(parallel == checksum(step_on_batch(lesson)),
                            "a step gives the same sums for any number of threads");
                    ThreadPool::shared().resize(3);
                    draw_batch(lesson);
                    total += step_on_batch(BatchStep{attention, tree, shared, sampling, lesson.dropout}).loss;
                }
                std::vector<float> first(forest.nodes.size()), second(forest.nodes.size());
                adam_rows(forest.nodes.data(), first.data(), second.data(), step.nodes.rows.data(),
                          step.nodes.values.data(), static_cast<index_t>(step.nodes.rows.size()), c.sizes.width,
                          AdamSettings{1e-3, 0.9, 0.999, 1e-8, 1e-4, true, 1});
                total += step.loss;
            }
        const index_t k = 7;
        std::vector<std::int32_t> found(static_cast<std::size_t>(k));
        std::vector<float> scores(static_cast<std::size_t>(k));
        LeafSet some(tree.leaves, [&](index_t leaf) { return tree.item_at_leaf[leaf] >= 0 && leaf % 3 != 0; });
        for (index_t i = 0; i < std::min<index_t>(c.instances, 4); ++i)
            for (bool filtered : {false, true}) {
                std::vector<index_t> excluded;
                if (filtered) excluded = {0, 1, below(random, tree.leaves)};
                const LeafSet* shared = filtered ? &some : tree.has_vacancies ? &tree.occupied_leaves : nullptr;
                const Eligible eligible(tree, shared, std::move(excluded));
                static thread_local BeamSearch search;
                std::vector<std::int32_t> known;
                for (index_t p = 0; p < length; ++p)
                    if (histories[static_cast<std::size_t>(i * length + p)] >= 0)
                        known.push_back(histories[static_cast<std::size_t>(i * length + p)]);
                std::vector<float> offset(static_cast<std::size_t>(tower.encoder.width), 0.25f);
                const Asked asked{{known.data(), static_cast<index_t>(known.size())},
                                  filtered ? offset.data() : nullptr,
                                  filtered ? layer_offsets.data() : nullptr};
                for (const Score& score : {Score{tree, &attention, nullptr, nullptr, 0},
                                           Score{tree, nullptr, &remembered.memory, nullptr, 0},
                                           Score{tree, nullptr, nullptr, &tower, 0},
                                           Score{tree, nullptr, nullptr, &recurrent_tower, 0},
                                           Score{tree, nullptr, nullptr, &compact_tower, 0},
                                           Score{tree, &attention, &remembered.memory, &tower, tree.height}}) {
                    for (bool spread : {false, true})
                        search.run(score, asked, eligible, c.beam, k, spread, Found{found.data(), scores.data()});
                    exact_scan(score, asked, eligible, k, Found{found.data(), scores.data()});
                }
            }
        const index_t lower = std::min<index_t>(3, tree.height);
        index_t candidates = tree.size(lower);
        std::vector<std::int64_t> groups(static_cast<std::size_t>(c.items), 0);
        std::vector<double> sums(static_cast<std::size_t>(c.items * candidates));
        const Followed followed{histories.data(), targets.data(), layer_offsets.data(), c.instances};
        score_candidates(attention, tree, Stage{groups.data(), 0, lower, candidates}, followed, sums.data());
        total += sums[0];
    }
    return total;
}

// Attention weights that leave for an array with not an entry to spare, in more than one stretch of columns.
double run_attention(std::mt19937& random, const Sizes& sizes) {
    auto net = random_network<float>(random, sizes);
    const index_t count = 2 * columns_in_cache + 3, length = sizes.history();
    auto table = random_values<float>(random, count * sizes.width);
    const Table nodes{table.data(), count, sizes.width, Storage::float32};
    std::vector<index_t> positions(static_cast<std::size_t>(length)), rows(static_cast<std::size_t>(count));
    for (index_t& position : positions) position = below(random, count);
    std::iota(rows.begin(), rows.end(), 0);
    History<float> history;
    NodeBlock<float> block;
    history.prepare(*net, nodes, positions.data());
    block.gather(*net, nodes, rows.data(), count);
    std::vector<float> weights(static_cast<std::size_t>(history.count * count));
    attend<false>(*net, history, block, WeightsOut<float>{weights.data(), count});
    for (index_t k = 0; k < history.count; ++k)
        require(std::equal(block.weights(k), block.weights(k) + count, weights.data() + k * count),
                "weights arrive as they are in the block");
    return weights.back();
}

// The float64 instantiation, as the gradient checks use it.
double run_double(std::mt19937& random, const Sizes& sizes) {
    auto net = random_network<double>(random, sizes);
    auto table = random_values<double>(random, 30 * sizes.width);
    const Table nodes{table.data(), 30, sizes.width, Storage::float64};
    const index_t rows = 5, columns = 9, length = sizes.history();
    std::vector<std::int64_t> node_rows, history_rows;
    for (index_t i = 0; i < rows * columns; ++i) node_rows.push_back(below(random, 31) - (i % columns != 0));
    for (std::int64_t& row : node_rows) row = std::min<std::int64_t>(row, 29);
    for (index_t i = 0; i < rows * length; ++i) history_rows.push_back(below(random, 31) - 1);
    std::vector<double> correction(node_rows.size(), 0.1), weights(static_cast<std::size_t>(rows), 1.0);
    const auto layer_offsets = random_values<double>(random, rows * sizes.mlp.front());
    const Candidates<double> given{node_rows.data(), correction.data(),    history_rows.data(), weights.data(),
                                   layer_offsets.data(), rows, columns};
    return step_on_candidates(Attention<double>{*net, Tables{nodes, Table{}, false}}, given, Dropout{}).loss;
}

Sizes sizes_of(std::vector<index_t> windows, index_t d, index_t h, std::vector<index_t> mlp, bool layer) {
    Sizes sizes;
    sizes.windows = std::move(windows);
    sizes.width = d;
    sizes.attention = h;
    sizes.mlp = std::move(mlp);
    sizes.normalisation = layer ? Normalisation::layer : Normalisation::none;
    return sizes;
}

}  // namespace

int main(int argc, char** argv) {
    std::mt19937 random(7);
    double total = 0;
    if (argc > 2) {
        const Sizes paper = sizes_of({20, 20, 10, 10, 2, 2, 2, 1, 1, 1}, 24, 36, {128, 64, 24}, true);
        total = run_case(random, Case{paper, 7129, 0, 2, 100, 70, 150, false, 0.0f}, std::atoi(argv[2]));
    } else {
        ThreadPool::shared().resize(3);
        for (bool layer : {false, true}) {
            total += run_case(random, Case{sizes_of({1}, 1, 1, {1, 1, 1}, layer), 1, 0, 2, 3, 2, 1, false, 0.0f}, 1);
            total += run_case(random, Case{sizes_of({1, 2}, 3, 5, {7}, layer), 2, 1, 2, 5, 1, 3, true, 0.2f}, 1);
            total += run_case(random, Case{sizes_of({4, 2}, 5, 7, {11, 6, 4}, layer), 70, 20, 3, 40, 6, 5, false, 0.0f}, 1);
            total += run_case(random, Case{sizes_of({6, 3, 2}, 9, 17, {13, 9, 5, 3, 2}, layer), 200, 0, 2, 40, 12, 9, false, 0.1f}, 1);
            total += run_case(random, Case{sizes_of({5, 5}, 24, 36, {40, 24}, layer), 900, 100, 2, 12, 70, 90, true, 0.0f}, 1);
            total += run_attention(random, sizes_of({4, 2}, 5, 7, {11, 6, 4}, layer));
            total += run_double(random, sizes_of({3, 2}, 5, 7, {11, 6, 4}, layer));
        }
    }
    std::printf("%.6f\n", total);
    return 0;
}
